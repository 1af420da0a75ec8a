// Package panicgroup runs parts of a request side by side. A panic in one of them is the
// request's, whose goroutine knows what to do with it, and not the process's.
package panicgroup

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Group is an errgroup.Group that hands panics on.
type Group struct {
	group *errgroup.Group
	cause atomic.Pointer[string]
}

// errPanicked ends the context of a group; nobody else sees it.
var errPanicked = errors.New("a part of the request panicked")

// WithContext returns a group of which so many run at once, and a context that ends
// when one of them fails or panics, and when Wait returns.
func WithContext(ctx context.Context, limit int) (*Group, context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	return &Group{group: g}, ctx
}

// Go runs a part, once there is room.
func (g *Group) Go(part func() error) {
	g.group.Go(func() (err error) {
		defer func() {
			if cause := recover(); cause != nil {
				text := fmt.Sprintf("%v\n%s", cause, debug.Stack())
				g.cause.CompareAndSwap(nil, &text)
				err = errPanicked
			}
		}()
		return part()
	})
}

// Wait waits for all parts and returns the first error. Where one has panicked it
// panics with a text that has the cause and the stack.
func (g *Group) Wait() error {
	err := g.group.Wait()
	if cause := g.cause.Load(); cause != nil {
		panic(*cause)
	}
	return err
}
