// Package lateness measures how late this process runs: what does not answer in time may
// have answered, and we have not looked. A timeout that is prolonged by the lateness
// blames nobody for a processor that is taken.
package lateness

import (
	"context"
	"sync/atomic"
	"time"
)

// The process is looked at every interval; a lateness is remembered for window to twice that.
const (
	interval = 100 * time.Millisecond
	window   = 5 * time.Second
)

// Monitor measures lateness while Run runs. It is safe for concurrent use.
type Monitor struct {
	now, before atomic.Int64 // the most of this window and of the one before, in nanoseconds
}

// Run measures until ctx is done.
func (m *Monitor) Run(ctx context.Context) {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	began := time.Now()
	for due := began.Add(interval); ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(began) >= window {
			m.before.Store(m.now.Swap(0))
			began = now
		}
		m.note(now.Sub(due))
		due = now.Add(interval)
		timer.Reset(interval)
	}
}

func (m *Monitor) note(late time.Duration) {
	if int64(late) > m.now.Load() { // Run alone writes
		m.now.Store(int64(late))
	}
}

// Late returns the most by which the process was late of late; of a nil Monitor 0.
func (m *Monitor) Late() time.Duration {
	if m == nil {
		return 0
	}
	return time.Duration(max(m.now.Load(), m.before.Load()))
}

// Prolong returns a timeout that is prolonged by several times the lateness, to at most ten
// times as long: many small delays add up to an answer that is not seen.
func (m *Monitor) Prolong(timeout time.Duration) time.Duration {
	const times, most = 10, 10
	return min(timeout+times*m.Late(), most*timeout)
}
