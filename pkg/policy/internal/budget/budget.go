// Package budget ends evaluations that have used their CPU time, and says what the
// others have cost.
package budget

import (
	"errors"
	"time"
)

var (
	ErrExceeded = errors.New("it exceeds its time budget")
	ErrStopped  = errors.New("stopped")
)

// Budget is a topdown.Cancel that ends an evaluation when it has used its time. It
// needs no timer: topdown asks it at every step.
type Budget struct {
	*Meter

	calls   uint
	started time.Time
	limit   time.Duration
	maxCPU  time.Duration // of the thread's CPU time
	done    <-chan struct{}
	over    bool // the time was used
	stopped bool // the caller's context ended
}

// Elapsed is how long ago the evaluation began.
func (b *Budget) Elapsed() time.Duration { return time.Since(b.started) }

// Cancel implements topdown.Cancel.
func (b *Budget) Cancel() { b.stopped = true }

// Cancelled implements topdown.Cancel.
func (b *Budget) Cancelled() bool {
	if b.calls++; b.calls&63 == 0 && !b.over && !b.stopped {
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
// no more CPU time than time passes.
func (b *Budget) exceeded() bool {
	if !b.exact && time.Since(b.started) <= b.limit {
		return false
	}
	return b.cpu() > b.maxCPU
}

// Err is why an evaluation ended that has no answer to give.
func (b *Budget) Err(otherwise error) error {
	switch {
	case b.over:
		return ErrExceeded
	case b.stopped:
		return ErrStopped
	case b.exceeded(): // in one step, within which nobody asks
		return ErrExceeded
	}
	return otherwise
}
