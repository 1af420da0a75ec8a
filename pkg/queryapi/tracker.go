package queryapi

import "sync"

// tracker counts requests in flight and lets its owner wait until all have ended.
type tracker struct {
	mu      sync.Mutex
	running int
	drained chan struct{} // not nil once draining; closed when nothing runs
}

// start counts a request; it returns false once the server drains.
func (t *tracker) start() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drained != nil {
		return false
	}
	t.running++
	return true
}

// add counts another goroutine of a request that has started.
func (t *tracker) add() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running++
}

func (t *tracker) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if t.running == 0 && t.drained != nil {
		close(t.drained)
	}
}

// drain refuses new requests. The channel that it returns is closed when all have ended.
// It is called once.
func (t *tracker) drain() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drained = make(chan struct{})
	if t.running == 0 {
		close(t.drained)
	}
	return t.drained
}
