//go:build !linux

package dirlock

import "golang.org/x/sys/unix"

// Locks are of the process: opening a directory twice goes unnoticed.
const setLock, getLock = unix.F_SETLK, unix.F_GETLK
