//go:build linux || darwin || freebsd

package budget

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time that the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return wallTime() // no known kernel refuses
	}
	return time.Duration(t.Nano())
}
