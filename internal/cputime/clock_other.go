//go:build !(linux || darwin || freebsd)

package cputime

import "time"

// Thread is the wall time, on systems without CPU time of threads.
func Thread() time.Duration { return wall() }

// Process is the wall time, too.
func Process() time.Duration { return wall() }
