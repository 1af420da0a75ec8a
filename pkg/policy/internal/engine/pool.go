package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/state"
)

// Run runs the goroutines that evaluate concurrently with the caller of Reset, Apply
// and Configure, until the context ends, and returns when all of them have ended.
func (e *Engine) Run(ctx context.Context) error {
	return e.runWorkers(ctx, func() error {
		<-ctx.Done()
		return nil
	})
}

func (e *Engine) runWorkers(ctx context.Context, body func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range e.opts.Parallelism - 1 {
		wg.Go(func() {
			w := e.newWorker()
			for {
				select {
				case <-ctx.Done():
					return
				case j := <-e.jobs:
					j.work(w)
					j.done.Done()
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	return body()
}

// Evaluate returns the verdicts of bindings on one snapshot.
func Evaluate(ctx context.Context, opts Options, s *aggregate.Snapshot) (*state.State, error) {
	return evaluateAt(ctx, opts, s, 0)
}

// evaluateAt evaluates as of a time before which opts may be.
func evaluateAt(ctx context.Context, opts Options, s *aggregate.Snapshot, asOf int64) (*state.State, error) {
	e, err := New(opts)
	if err != nil {
		return nil, err
	}
	e.clock.AsOf = asOf
	err = e.runWorkers(ctx, func() error {
		_, err := e.Reset(ctx, s)
		return err
	})
	return e.State(), err
}

// job is work shared by goroutines: f for 0 to n-1.
type job struct {
	n        int
	next     atomic.Int64
	stop     <-chan struct{}
	wait     func() error // before each; may be nil
	f        func(w *worker, i int)
	done     sync.WaitGroup
	panicked atomic.Pointer[error] // a panic
}

func (j *job) work(w *worker) {
	defer w.meter.LockThread()()
	defer w.dropDocuments()
	for {
		i := int(j.next.Add(1)) - 1
		if i >= j.n {
			return
		}
		select {
		case <-j.stop:
			return
		default:
		}
		if j.wait != nil && j.wait() != nil {
			return // the context has ended
		}
		if err := guard(func() error { j.f(w, i); return nil }); err != nil {
			j.panicked.Store(&err)
			return
		}
	}
}

// parallel calls f for 0 to n-1 on the caller's goroutine and on idle ones of Run. It
// returns when all calls have returned, or an error when the context has ended.
func (e *Engine) parallel(ctx context.Context, n int, f func(w *worker, i int)) error {
	j := &job{n: n, stop: ctx.Done(), f: f}
	if e.wait != nil {
		j.wait = func() error { return e.wait(ctx) }
	}
	for range min(e.opts.Parallelism, n) - 1 {
		j.done.Add(1)
		select {
		case e.jobs <- j:
			continue
		default:
			j.done.Done()
		}
		break
	}
	j.work(e.callerWorker)
	j.done.Wait()
	if err := j.panicked.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrReset, *err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
