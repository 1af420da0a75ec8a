// Package panicgroup runs parts of a request concurrently, as errgroup does. A panic in one
// of them is passed to the goroutine of the request, which recovers it, and does not end
// the process.
package panicgroup

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Group is an errgroup.Group that passes panics on.
type Group struct {
	group *errgroup.Group
	cause atomic.Pointer[string]
}

// errPanicked ends the context of a group; it is never returned.
var errPanicked = errors.New("a function of the group panicked")

// WithContext returns a group that runs at most limit functions at once, and a context that
// ends when one of them fails or panics, and when Wait returns.
func WithContext(ctx context.Context, limit int) (*Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	return &Group{group: g}, ctx
}

// Go runs a function, once fewer than the limit run.
func (g *Group) Go(f func() error) {
	g.group.Go(func() (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				text := fmt.Sprintf("%v\n%s", cause, debug.Stack())
				g.cause.CompareAndSwap(nil, &text)
				err = errPanicked
			}
		}()
		return f()
	})
}

// Wait waits for all functions and returns the first error. If one has panicked it panics
// with a text of the cause and the stack.
func (g *Group) Wait() error {
	err := g.group.Wait()
	if cause := g.cause.Load(); cause != nil {
		panic(*cause)
	}
	return err
}
