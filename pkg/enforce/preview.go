package enforce

import (
	"context"
	"sync"

	"federator.dev/federator/pkg/policy"
)

// turn is whether the loop evaluates, for those who give way to it. Any goroutine may use it.
type turn struct {
	mu   sync.Mutex
	over chan struct{} // closed when the loop has evaluated; nil: it does not evaluate
}

func (t *turn) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = make(chan struct{})
}

func (t *turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.over)
	t.over = nil
}

// Idle returns when the loop evaluates nothing, or the context's error.
func (l *Loop) Idle(ctx context.Context) error {
	for {
		l.turn.mu.Lock()
		over := l.turn.over
		l.turn.mu.Unlock()
		if over == nil {
			return context.Cause(ctx)
		}
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// NewPreview returns a preview of other policies and bindings beside those of a state of the loop, with
// its limits. With Idle as what it waits for, it gives way to the loop.
func (l *Loop) NewPreview(s *policy.State, set *policy.Set, bindings []policy.Binding) (*policy.Preview, error) {
	now := l.opts.Clock()
	current := make([]policy.Binding, len(bindings))
	for i := range bindings {
		current[i] = bindingAt(&bindings[i], now)
	}
	return policy.NewPreview(s, policy.EngineOptions{Set: set, Bindings: current, Limits: l.opts.Limits, Clock: l.opts.Clock})
}
