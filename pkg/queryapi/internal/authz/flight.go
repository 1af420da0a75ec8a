package authz

import (
	"context"
	"errors"
	"sync"
)

// flights let one caller ask what several want to know. The asker works under
// its own context; when that ends, one of those who wait asks anew.
type flights struct {
	mu    sync.Mutex
	calls map[question]*call
}

type call struct {
	done chan struct{} // closed when the fields below are set
	ans  answer
	err  error
	left bool // the asker gave up, which says nothing to others
}

var errPanicked = errors.New("access: a review panicked")

// do returns what ask returns, called here or by another. It reports whether
// the answer is another's.
func (f *flights) do(ctx context.Context, q question, ask func() (answer, error)) (answer, bool, error) {
	for {
		f.mu.Lock()
		if c, ok := f.calls[q]; ok {
			f.mu.Unlock()
			select {
			case <-c.done:
			case <-ctx.Done():
				return answer{}, true, ctx.Err()
			}
			if c.left {
				continue
			}
			return c.ans, true, c.err
		}
		c := &call{done: make(chan struct{}), err: errPanicked}
		if f.calls == nil {
			f.calls = make(map[question]*call)
		}
		f.calls[q] = c
		f.mu.Unlock()
		f.fly(ctx, q, c, ask)
		return c.ans, false, c.err
	}
}

func (f *flights) fly(ctx context.Context, q question, c *call, ask func() (answer, error)) {
	defer func() {
		f.mu.Lock()
		delete(f.calls, q)
		f.mu.Unlock()
		close(c.done)
	}()
	c.ans, c.err = ask()
	c.left = c.err != nil && ctx.Err() != nil
}
