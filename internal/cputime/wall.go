package cputime

import "time"

// started is about when the process started.
var started = time.Now()

func wall() time.Duration { return time.Since(started) }
