//go:build linux || darwin || freebsd

package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Thread is the CPU time that the calling thread has used.
func Thread() time.Duration { return of(unix.CLOCK_THREAD_CPUTIME_ID) }

// Process is the CPU time that all threads of the process have used.
func Process() time.Duration { return of(unix.CLOCK_PROCESS_CPUTIME_ID) }

func of(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return wall() // no known kernel refuses
	}
	return time.Duration(t.Nano())
}
