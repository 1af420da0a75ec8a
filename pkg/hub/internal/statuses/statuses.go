// Package statuses writes the statuses of many objects, one at a time, so that who decides
// about them does not wait for the hub.
package statuses

import (
	"cmp"
	"context"
	"sync"

	"federator.dev/federator/internal/trigger"
)

// Writer writes the newest statuses that it was given. It is safe for concurrent use.
type Writer[T any] struct {
	write     func(context.Context, T) error
	triggered trigger.Trigger

	mu      sync.Mutex
	pending map[string]T // by name of the object
	last    string       // name of the object whose status was written last
	failed  bool
}

// NewWriter returns a Writer; nothing is written before Run. An error of write is not
// retried, but makes Failed true.
func NewWriter[T any](write func(context.Context, T) error) *Writer[T] {
	return &Writer[T]{write: write, triggered: trigger.New()}
}

// Set says what is to be written, by name, instead of what was and has not been written. The
// map is the Writer's.
func (w *Writer[T]) Set(pending map[string]T) {
	w.mu.Lock()
	w.pending, w.failed = pending, false
	w.mu.Unlock()
	w.triggered.Fire()
}

// Failed reports whether a write has failed since Set.
func (w *Writer[T]) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// Run writes until the context ends.
func (w *Writer[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next, ok := w.next()
		if !ok {
			select {
			case <-ctx.Done():
			case <-w.triggered:
			}
			continue
		}
		if err := w.write(ctx, next); err != nil {
			w.mu.Lock()
			w.failed = true
			w.mu.Unlock()
		}
	}
}

// next returns the next status to write, in the order of names, from the last one on: however
// often there are new ones, none waits for long.
func (w *Writer[T]) next() (next T, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, after := "", ""
	for name := range w.pending {
		if first == "" || name < first {
			first = name
		}
		if name > w.last && (after == "" || name < after) {
			after = name
		}
	}
	w.last = cmp.Or(after, first)
	next, ok = w.pending[w.last]
	delete(w.pending, w.last)
	return next, ok
}
