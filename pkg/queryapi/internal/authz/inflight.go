package authz

import (
	"context"
	"errors"
	"sync"
)

// inflightReviews deduplicate identical reviews, as singleflight does. The first request
// runs under its own context; when that ends, one of the waiters takes over.
type inflightReviews struct {
	mu    sync.Mutex
	calls map[attributes]*inflightReview
}

type inflightReview struct {
	done      chan struct{} // closed when the fields below are set
	decision  decision
	err       error
	abandoned bool // its request was cancelled: others repeat it
}

var errPanicked = errors.New("authz: a review panicked")

// do returns the result of review, called here or by an identical request, and whether
// it was shared.
func (f *inflightReviews) do(ctx context.Context, attrs attributes, review func() (decision, error)) (decision, bool, error) {
	for {
		f.mu.Lock()
		if c, ok := f.calls[attrs]; ok {
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
		f.calls[attrs] = c
		f.mu.Unlock()
		f.run(ctx, attrs, c, review)
		return c.decision, false, c.err
	}
}

func (f *inflightReviews) run(ctx context.Context, attrs attributes, c *inflightReview, review func() (decision, error)) {
	defer func() {
		f.mu.Lock()
		delete(f.calls, attrs)
		f.mu.Unlock()
		close(c.done)
	}()
	c.decision, c.err = review()
	c.abandoned = c.err != nil && ctx.Err() != nil
}
