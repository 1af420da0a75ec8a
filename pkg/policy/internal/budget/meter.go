package budget

import (
	"runtime"
	"time"
)

// Meter tells the CPU time of the thread that a worker evaluates on: what a busy
// machine makes an evaluation wait for is not charged to its policy. Asking the
// system takes longer than reading the clock, so that what a thread had used at the
// begin of an evaluation is known only roughly.
type Meter struct {
	cpu   func() time.Duration // of the calling thread
	exact bool                 // cpu is a test's: it is asked each time

	locked bool          // the goroutine keeps its thread
	used   time.Duration // by the thread, at
	at     time.Time
}

// NewMeter returns a meter; a cpu that is not nil is a test's.
func NewMeter(cpu func() time.Duration) Meter {
	if cpu == nil {
		return Meter{cpu: threadTime}
	}
	return Meter{cpu: cpu, exact: true}
}

// LockThread keeps the goroutine on its thread until the returned function is called.
func (m *Meter) LockThread() (release func()) {
	if m.locked {
		return func() {}
	}
	runtime.LockOSThread()
	m.locked, m.at = true, time.Time{}
	return func() {
		m.locked = false
		runtime.UnlockOSThread()
	}
}

// Start returns the budget of an evaluation that begins now.
func (m *Meter) Start(limit time.Duration, done <-chan struct{}) Budget {
	now := time.Now()
	if m.exact || m.at.IsZero() || now.Sub(m.at) > limit/16 {
		m.used, m.at = m.cpu(), now
	}
	// What the thread used between at and now is not the evaluation's. It is no more
	// than the time that passed, which is forgiven.
	return Budget{Meter: m, started: now, limit: limit, maxCPU: m.used + now.Sub(m.at) + limit, done: done}
}

// started is when the process did, about.
var started = time.Now()

func wallTime() time.Duration { return time.Since(started) }
