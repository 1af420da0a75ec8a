package budget

import (
	"runtime"
	"time"

	"federator.dev/federator/internal/cputime"
)

// Meter measures the CPU time of a worker's thread: the time that an evaluation waits on
// a busy machine is not charged to its policy. The system call takes longer than reading
// the clock, so that what a thread had used at the start of an evaluation is known only
// approximately.
type Meter struct {
	cpu   func() time.Duration // of the calling thread
	exact bool                 // cpu is that of a test: it is called each time

	locked bool          // the goroutine is locked to its thread
	used   time.Duration // by the thread, at
	at     time.Time
}

// NewMeter returns a meter. Tests pass a cpu of their own; nil is that of the system.
func NewMeter(cpu func() time.Duration) Meter {
	if cpu == nil {
		return Meter{cpu: cputime.Thread}
	}
	return Meter{cpu: cpu, exact: true}
}

// LockThread locks the goroutine to its thread until the returned function is called.
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

// Start returns the budget of an evaluation that starts now.
func (m *Meter) Start(limit time.Duration, done <-chan struct{}) Budget {
	now := time.Now()
	if m.exact || m.at.IsZero() || now.Sub(m.at) > limit/16 {
		m.used, m.at = m.cpu(), now
	}
	// What the thread used between at and now is not the evaluation's. It is at most
	// the time that passed, which is added to the limit.
	return Budget{Meter: m, started: now, limit: limit, maxCPU: m.used + now.Sub(m.at) + limit, done: done}
}
