package queryapi

import "sync"

// tracker counts requests in flight and lets its owner wait until all have ended.
type tracker struct {
	mu      sync.Mutex
	running int
	drained chan struct{} // not nil once draining; closed when nothing runs
}

// start counts a request; it returns false once the server drains.
func (g *tracker) start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drained != nil {
		return false
	}
	g.running++
	return true
}

// add counts another goroutine of a request that has started.
func (g *tracker) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
}

func (g *tracker) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 && g.drained != nil {
		close(g.drained)
	}
}

// drain refuses new requests. The channel that it returns is closed when all have ended.
// It is called once.
func (g *tracker) drain() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drained = make(chan struct{})
	if g.running == 0 {
		close(g.drained)
	}
	return g.drained
}
