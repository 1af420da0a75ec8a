package policyquery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Bounds of the queries of all callers together: each may take a processor and twice
// maxRead of memory.
const (
	atOnce    = 4               // that run
	ofOne     = 2               // of these, of one caller
	queued    = 8               // that wait, of one caller
	patiently = 5 * time.Second // how long one waits
)

// turns lets a bounded number of queries run at once, and of each caller a share of it:
// others wait for a while, in the order in which they came, but for those whose caller
// has its share. The zero value is ready to use.
type turns struct {
	mu      sync.Mutex
	running int
	of      map[string]int // running, by caller
	waiting []*turn
}

// turn is a query that waits.
type turn struct {
	caller string
	come   chan struct{} // closed when it runs
}

// take waits for the caller's turn. The error is a 429, or the context's; without one,
// leave must be called.
func (t *turns) take(ctx context.Context, caller string) error {
	t.mu.Lock()
	if t.running < atOnce && t.of[caller] < ofOne {
		t.run(caller)
		t.mu.Unlock()
		return nil
	}
	n := 0
	for _, w := range t.waiting {
		if w.caller == caller {
			n++
		}
	}
	if n >= queued {
		t.mu.Unlock()
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d of your Rego queries run or wait already, please try again later", ofOne+queued), 1)
	}
	w := &turn{caller, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	timer := time.NewTimer(patiently)
	defer timer.Stop()
	select {
	case <-w.come:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.come: // just now
		if ctx.Err() == nil {
			return nil
		}
		t.end(caller)
		return context.Cause(ctx)
	default:
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(x *turn) bool { return x == w })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return apierrors.NewTooManyRequests("too many Rego queries at once, please try again later", int(patiently/time.Second))
}

// leave gives a turn back.
func (t *turns) leave(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(caller)
}

// run and end count; the caller holds the lock.
func (t *turns) run(caller string) {
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.running++
	t.of[caller]++
}

func (t *turns) end(caller string) {
	t.running--
	if t.of[caller]--; t.of[caller] == 0 {
		delete(t.of, caller)
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(w *turn) bool {
		if t.running >= atOnce || t.of[w.caller] >= ofOne {
			return false
		}
		t.run(w.caller)
		close(w.come)
		return true
	})
}
