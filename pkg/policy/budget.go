package policy

import (
	"errors"
	"runtime"
	"time"

	"federator.dev/federator/pkg/policy/internal/limits"
)

var (
	errBudget  = errors.New("it exceeds its time budget")
	errStopped = errors.New("stopped")
)

// meter tells the CPU time of the thread that a worker evaluates on: what a busy
// machine makes an evaluation wait for is not charged to its policy. Asking the
// system takes longer than reading the clock, so that what a thread had used at the
// begin of an evaluation is known only roughly.
type meter struct {
	cpu   func() time.Duration // of the calling thread
	exact bool                 // cpu is a test's: it is asked each time

	held bool          // the goroutine keeps its thread
	used time.Duration // by the thread, at
	at   time.Time
}

// hold keeps the goroutine on its thread until the returned function is called.
func (m *meter) hold() (release func()) {
	if m.held {
		return func() {}
	}
	runtime.LockOSThread()
	m.held, m.at = true, time.Time{}
	return func() {
		m.held = false
		runtime.UnlockOSThread()
	}
}

// begin returns the budget of an evaluation that begins now.
func (m *meter) begin(limit time.Duration, done <-chan struct{}) budget {
	now := time.Now()
	if m.exact || m.at.IsZero() || now.Sub(m.at) > limit/16 {
		m.used, m.at = m.cpu(), now
	}
	// What the thread used between at and now is not the evaluation's. It is no more
	// than the time that passed, which is forgiven.
	return budget{meter: m, begun: now, limit: limit, most: m.used + now.Sub(m.at) + limit, done: done}
}

// budget is a topdown.Cancel that ends an evaluation when it has used its time. It
// needs no timer: topdown asks it at every step.
type budget struct {
	*meter

	calls   uint
	begun   time.Time
	limit   time.Duration
	most    time.Duration // of the thread's CPU time
	done    <-chan struct{}
	over    bool // the time was used
	stopped bool // the caller's context ended
}

// Cancel implements topdown.Cancel.
func (b *budget) Cancel() { b.stopped = true }

// Cancelled implements topdown.Cancel.
func (b *budget) Cancelled() bool {
	if b.calls++; b.calls&63 == 0 && !b.over && !b.stopped {
		select {
		case <-b.done:
			b.stopped = true
		default:
			b.over = b.spent()
		}
	}
	return b.over || b.stopped
}

// spent reports whether the evaluation has used more than its limit. A thread uses
// no more CPU time than time passes.
func (b *budget) spent() bool {
	if !b.exact && time.Since(b.begun) <= b.limit {
		return false
	}
	return b.cpu() > b.most
}

// err is why an evaluation ended that has no answer to give.
func (b *budget) err(otherwise error) error {
	switch {
	case b.over:
		return errBudget
	case b.stopped:
		return errStopped
	case b.spent(): // in one step, within which nobody asks
		return errBudget
	}
	return otherwise
}

// wasted is how much of its limit an evaluation has used that ends with err, in full
// hundredths: nothing where it has an answer. It belongs to the thread of the
// evaluation.
func (b *budget) wasted(err error) int64 {
	switch {
	case b.meter == nil: // it was not begun
		return 0
	case errors.Is(err, errBudget):
		return overrun
	case err == nil || b.stopped || !b.exact && time.Since(b.begun) < b.limit/overrun:
		return 0
	}
	used := int64((b.cpu() - b.most + b.limit) * overrun / b.limit)
	return max(0, min(used, overrun))
}

// slow is the CPU time of an evaluation that has used a tenth of its limit or more,
// 0 otherwise. It belongs to the thread of the evaluation.
func (b *budget) slow() time.Duration {
	if b.meter == nil || !b.exact && time.Since(b.begun) < b.limit/10 {
		return 0
	}
	if used := b.cpu() - b.most + b.limit; used >= b.limit/10 {
		return used
	}
	return 0
}

// cost is what an evaluation has cost that ended with err.
func (b *budget) cost(err error) cost {
	return cost{wasted: b.wasted(err), slow: b.slow(), err: err}
}

// excess is a limit that an evaluation exceeds with what it gives.
type excess string

func (e excess) Error() string { return string(e) }

// cost is what an evaluation is charged with.
type cost struct {
	wasted int64         // hundredths of its limit, used without an answer
	slow   time.Duration // CPU time, where it is much
	err    error         // that it ended with
}

func (c cost) none() bool { return c.wasted <= 0 && c.slow <= 0 }

// waste says why evaluations that end with err are quarantined: by the limit that
// they exceed. Other errors may quote objects, which not everybody may read who may
// know of the quarantine.
func waste(err error) string {
	why := "its evaluations use up their time budget and give no answer, again and again"
	var e excess
	if errors.As(err, &e) || errors.Is(err, errBudget) || errors.Is(err, limits.ErrLimit) {
		return why + ": " + err.Error()
	}
	return why
}

// maxTries is how often what overran the budget is evaluated again by itself.
const maxTries = 3

// tried takes note of whether x overran the budget.
func tried[T comparable](overran map[T]int, x T, over bool) map[T]int {
	if over {
		if overran == nil {
			overran = map[T]int{}
		}
		overran[x]++
		return overran
	}
	delete(overran, x)
	return overran
}

// started is when the process did, about.
var started = time.Now()

func wallTime() time.Duration { return time.Since(started) }
