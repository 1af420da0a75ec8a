// Package budget protects an API server from what is asked of it through an agent: requests are let through at a rate,
// the weightier first, and responses at another. What waits too long is shed, and comes again later.
package budget

import (
	"container/heap"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ErrShed is the error of a request that has waited too long, or that there is no room for.
var ErrShed = errors.New("there are too many requests")

const (
	patience   = 5 * time.Second // how long a request waits for its turn
	maxWaiting = 4096            // requests
	burst      = 2 * time.Second // how much of the rates may come at once
	minBytes   = 64 << 10        // of that, as responses are copied in such pieces
)

// Budget is what may be asked of an API server. Its methods may be called from any goroutine.
type Budget struct {
	bytes *rate.Limiter // nil: unbounded

	mu      sync.Mutex
	rate    *rate.Limiter // nil: unbounded
	waiting queue
	next    uint64
	timer   *time.Timer // lets the next through; nil while none waits
}

// New returns a budget of requests and bytes a second; 0 bounds nothing.
func New(requests float64, bytes int64) *Budget {
	b := &Budget{}
	if requests > 0 {
		b.rate = rate.NewLimiter(rate.Limit(requests), max(1, int(requests*burst.Seconds())))
	}
	if bytes > 0 {
		b.bytes = rate.NewLimiter(rate.Limit(bytes), max(minBytes, int(bytes)*int(burst.Seconds())))
	}
	return b
}

// Enter waits for the turn of a request: of those that wait, the one of the least weight is the next, and the oldest of
// these. Its error is ErrShed or the context's.
func (b *Budget) Enter(ctx context.Context, weight int) error {
	if b.rate == nil {
		return nil
	}
	w, err := b.join(weight)
	if w == nil {
		return err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-w.turn:
		return nil
	case <-late.C:
		err = ErrShed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.at < 0 { // it was let through just now
		return nil
	}
	heap.Remove(&b.waiting, w.at)
	return err
}

// join returns nil where the request need not wait, or may not.
func (b *Budget) join(weight int) (*waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 && b.rate.Allow() {
		return nil, nil
	}
	if len(b.waiting) >= maxWaiting {
		return nil, ErrShed
	}
	w := &waiter{weight: weight, number: b.next, turn: make(chan struct{})}
	b.next++
	heap.Push(&b.waiting, w)
	b.scheduleLocked()
	return w, nil
}

// scheduleLocked has the next let through when the rate allows it. b.mu must be held.
func (b *Budget) scheduleLocked() {
	if b.timer != nil || len(b.waiting) == 0 {
		return
	}
	r := b.rate.Reserve()
	b.timer = time.AfterFunc(r.Delay(), b.release)
}

// release lets the next through, for which the rate has made room.
func (b *Budget) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	if len(b.waiting) > 0 {
		close(heap.Pop(&b.waiting).(*waiter).turn) //nolint:errcheck // it holds no others
	}
	b.scheduleLocked()
}

// waiter is a request that waits.
type waiter struct {
	weight int
	number uint64 // in the order of coming
	at     int    // in the queue; -1: it was let through
	turn   chan struct{}
}

// queue is a heap: the first is the next.
type queue []*waiter

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].weight != q[j].weight {
		return q[i].weight < q[j].weight
	}
	return q[i].number < q[j].number
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *queue) Push(x any) {
	w := x.(*waiter) //nolint:errcheck // it holds no others
	w.at = len(*q)
	*q = append(*q, w)
}

func (q *queue) Pop() any {
	old := *q
	n := len(old) - 1
	w := old[n]
	old[n] = nil
	w.at, *q = -1, old[:n]
	return w
}

// Slow returns a reader of a response that is read no faster than the budget lets it; the body itself where there is
// no bound. It lives as long as its request, whose context ends what waits.
func (b *Budget) Slow(ctx context.Context, body io.Reader) io.Reader {
	if b.bytes == nil {
		return body
	}
	return &slowReader{body, ctx, b.bytes}
}

type slowReader struct {
	io.Reader
	ctx   context.Context // of the request, as a Reader takes none
	bytes *rate.Limiter
}

func (r *slowReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(len(p), minBytes)])
	if n > 0 {
		if waited := r.bytes.WaitN(r.ctx, n); waited != nil {
			return 0, waited
		}
	}
	return n, err
}
