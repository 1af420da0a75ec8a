// Package budget ends evaluations that exceed their CPU time, and measures the cost of
// the others.
package budget

import (
	"errors"
	"time"
)

var (
	ErrExceeded = errors.New("it exceeds its time budget")
	ErrStopped  = errors.New("stopped")
)

// Budget is a topdown.Cancel that ends an evaluation when it exceeds its time. It
// needs no timer: topdown calls it at every step.
type Budget struct {
	*Meter

	calls   uint
	started time.Time
	limit   time.Duration
	maxCPU  time.Duration // of the thread's CPU time
	done    <-chan struct{}
	over    bool // the time is exceeded
	stopped bool // the caller's context ended
}

// Elapsed is the time since the evaluation began.
func (b *Budget) Elapsed() time.Duration { return time.Since(b.started) }

// Cancel implements topdown.Cancel.
func (b *Budget) Cancel() { b.stopped = true }

// Cancelled implements topdown.Cancel.
func (b *Budget) Cancelled() bool {
	if b.calls++; b.calls&63 == 0 {
		return b.Spent()
	}
	return b.over || b.stopped
}

// Spent is Cancelled for steps that take longer: it asks the clock each time.
func (b *Budget) Spent() bool {
	if !b.over && !b.stopped {
		select {
		case <-b.done:
			b.stopped = true
		default:
			b.over = b.exceeded()
		}
	}
	return b.over || b.stopped
}

// exceeded reports whether the evaluation has used more than its limit. A thread uses
// no more CPU time than wall time.
func (b *Budget) exceeded() bool {
	if !b.exact && time.Since(b.started) <= b.limit {
		return false
	}
	return b.cpu() > b.maxCPU
}

// Err returns why the budget ended an evaluation, or otherwise its own error.
func (b *Budget) Err(otherwise error) error {
	switch {
	case b.over:
		return ErrExceeded
	case b.stopped:
		return ErrStopped
	case b.exceeded(): // within one step of topdown
		return ErrExceeded
	}
	return otherwise
}
