package queryapi

import "sync"

// tracker counts who is inside and lets its owner wait until all have left.
type tracker struct {
	mu      sync.Mutex
	running int
	drained chan struct{} // not nil once closed; closed when nobody is inside
}

// start reports whether the gate is open, and if so counts the caller.
func (g *tracker) start() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drained != nil {
		return false
	}
	g.running++
	return true
}

// add counts once more for somebody who is inside.
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

// drain lets nobody in any more. The channel that it returns is closed when
// all have left. It is called once.
func (g *tracker) drain() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drained = make(chan struct{})
	if g.running == 0 {
		close(g.drained)
	}
	return g.drained
}
