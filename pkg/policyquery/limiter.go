package policyquery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Bounds of the queries of all callers together: each may use a processor and twice
// maxReadBytes of memory.
const (
	maxRunning         = 4               // at once
	maxPerCaller       = 2               // at once
	maxQueuedPerCaller = 8               // waiting
	queueTimeout       = 5 * time.Second // in the queue
)

// limiter bounds the queries that run at once, in all and per caller. Others wait in order
// of arrival, up to queueTimeout; those of a caller that has reached its own limit are
// passed over. The zero value is ready to use.
type limiter struct {
	mu       sync.Mutex
	running  int
	byCaller map[string]int // running, by caller
	waiting  []*waiter
}

// waiter is a query in the queue.
type waiter struct {
	caller string
	ready  chan struct{} // closed when it may run
}

// acquire waits for a slot. The error is a 429 or the context's; without an error, release
// must be called.
func (t *limiter) acquire(ctx context.Context, caller string) error {
	t.mu.Lock()
	if t.running < maxRunning && t.byCaller[caller] < maxPerCaller {
		t.startLocked(caller)
		t.mu.Unlock()
		return nil
	}
	n := 0
	for _, w := range t.waiting {
		if w.caller == caller {
			n++
		}
	}
	if n >= maxQueuedPerCaller {
		t.mu.Unlock()
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d of your Rego queries are already running or waiting, please try again later", maxPerCaller+maxQueuedPerCaller), 1)
	}
	w := &waiter{caller, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	timer := time.NewTimer(queueTimeout)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.ready: // just now
		if ctx.Err() == nil {
			return nil
		}
		t.endLocked(caller)
		return context.Cause(ctx)
	default:
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(x *waiter) bool { return x == w })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return apierrors.NewTooManyRequests("too many concurrent Rego queries, please try again later", int(queueTimeout/time.Second))
}

// release releases a slot.
func (t *limiter) release(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(caller)
}

// startLocked and endLocked count; the caller holds t.mu.
func (t *limiter) startLocked(caller string) {
	if t.byCaller == nil {
		t.byCaller = map[string]int{}
	}
	t.running++
	t.byCaller[caller]++
}

func (t *limiter) endLocked(caller string) {
	t.running--
	if t.byCaller[caller]--; t.byCaller[caller] == 0 {
		delete(t.byCaller, caller)
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waiter) bool {
		if t.running >= maxRunning || t.byCaller[w.caller] >= maxPerCaller {
			return false
		}
		t.startLocked(w.caller)
		close(w.ready)
		return true
	})
}
