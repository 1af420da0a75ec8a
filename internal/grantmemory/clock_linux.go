package grantmemory

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that all processes of a machine share, and that nobody sets.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // nothing is as old as that: what is on disk is not trusted
	}
	return time.Duration(t.Nano())
}
