//go:build !linux

package persistence

import "golang.org/x/sys/unix"

// Locks are of the process: whoever opens a directory twice finds out nothing.
const setLock, getLock = unix.F_SETLK, unix.F_GETLK
