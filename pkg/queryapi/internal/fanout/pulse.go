package fanout

import (
	"context"
	"sync"
	"time"
)

// Pulse says when answers of a whole fleet may have changed: with each change that this process
// makes or reads itself, and otherwise at intervals, as nobody says what has changed at others.
type Pulse struct {
	mu   sync.Mutex
	next chan struct{}
}

// Intervals of a Pulse.
const (
	minPulse = 200 * time.Millisecond
	maxPulse = 2 * time.Second
)

// NewPulse returns a Pulse.
func NewPulse() *Pulse { return &Pulse{next: make(chan struct{})} }

// Next returns a channel that is closed by the next pulse.
func (p *Pulse) Next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// Run beats until ctx ends. own returns a channel that is closed by the next change of this process.
func (p *Pulse) Run(ctx context.Context, own func() <-chan struct{}) {
	for {
		changed := own()
		if !wait(ctx, nil, minPulse) || !wait(ctx, changed, maxPulse-minPulse) {
			return
		}
		p.mu.Lock()
		close(p.next)
		p.next = make(chan struct{})
		p.mu.Unlock()
	}
}

// wait waits for a time or a change, and reports whether ctx has not ended.
func wait(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return true
}
