//go:build !(linux || darwin || freebsd)

package budget

import "time"

// threadTime is the wall time, on systems without CPU time of threads.
func threadTime() time.Duration { return wallTime() }
