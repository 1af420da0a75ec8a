package multiplex

import (
	"sync"
	"time"
)

// meter divides the CPU time that the process uses among the questions that are being answered. A
// question costs no more than its share of it: waiting for the hub, or for a busy machine, costs nothing.
type meter struct {
	cpu func() time.Duration // of the process

	mu      sync.Mutex // guards the following
	running int
	at      time.Duration // what the process had used when running changed last
	share   time.Duration // what one question would have cost that ran all the time
}

// start returns what says what the question that starts now has cost, when it has been answered.
func (m *meter) start() (end func() time.Duration) {
	began, from := time.Now(), m.change(1)
	return func() time.Duration { return min(m.change(-1)-from, time.Since(began)) }
}

func (m *meter) change(by int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cpu()
	if m.running > 0 {
		m.share += (now - m.at) / time.Duration(m.running)
	}
	m.at = now
	m.running += by
	return m.share
}
