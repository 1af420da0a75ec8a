package queryapi

import "sync"

// gate counts who is inside and lets its owner wait until all have left.
type gate struct {
	mu     sync.Mutex
	inside int
	empty  chan struct{} // not nil once closed; closed when nobody is inside
}

// enter reports whether the gate is open, and if so counts the caller.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.empty != nil {
		return false
	}
	g.inside++
	return true
}

// again counts once more for somebody who is inside.
func (g *gate) again() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
	}
}

// close lets nobody in any more. The channel that it returns is closed when
// all have left. It is called once.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.empty = make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
	return g.empty
}
