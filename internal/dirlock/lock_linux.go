package dirlock

import "golang.org/x/sys/unix"

// Locks are of the open file: a second Open of the same process finds the directory used.
const setLock, getLock = unix.F_OFD_SETLK, unix.F_OFD_GETLK
