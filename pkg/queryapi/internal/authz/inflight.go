package authz

import (
	"context"
	"errors"
	"sync"
)

// inflightReviews let one caller ask what several want to know. The asker works under
// its own context; when that ends, one of those who wait asks anew.
type inflightReviews struct {
	mu    sync.Mutex
	calls map[attributes]*inflightReview
}

type inflightReview struct {
	done      chan struct{} // closed when the fields below are set
	decision  decision
	err       error
	abandoned bool // the asker gave up, which says nothing to others
}

var errPanicked = errors.New("access: a review panicked")

// do returns what ask returns, called here or by another. It reports whether
// the answer is another's.
func (f *inflightReviews) do(ctx context.Context, q attributes, ask func() (decision, error)) (decision, bool, error) {
	for {
		f.mu.Lock()
		if c, ok := f.calls[q]; ok {
			f.mu.Unlock()
			select {
			case <-c.done:
			case <-ctx.Done():
				return decision{}, true, ctx.Err()
			}
			if c.abandoned {
				continue
			}
			return c.decision, true, c.err
		}
		c := &inflightReview{done: make(chan struct{}), err: errPanicked}
		if f.calls == nil {
			f.calls = make(map[attributes]*inflightReview)
		}
		f.calls[q] = c
		f.mu.Unlock()
		f.run(ctx, q, c, ask)
		return c.decision, false, c.err
	}
}

func (f *inflightReviews) run(ctx context.Context, q attributes, c *inflightReview, ask func() (decision, error)) {
	defer func() {
		f.mu.Lock()
		delete(f.calls, q)
		f.mu.Unlock()
		close(c.done)
	}()
	c.decision, c.err = ask()
	c.abandoned = c.err != nil && ctx.Err() != nil
}
