package selection

import (
	"context"
	"iter"
	"runtime"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
)

// Sizes of windows, and the fewest objects that are worth a goroutine. Windows grow from the
// minimum to the maximum, so that a page that is soon full decodes at most twice what it
// needs.
const (
	firstWindow = 64
	lastWindow  = 4096
	batchSize   = 32
)

// matchParallel yields the objects that match, in order, until the context ends. Bodies are
// decoded on all processors. An error is yielded last.
func matchParallel(ctx context.Context, objects iter.Seq[aggregate.Object], rest *residual) iter.Seq2[aggregate.Object, error] {
	if !rest.needsBody() {
		return matchSerial(ctx, objects, rest)
	}
	return func(yield func(aggregate.Object, error) bool) {
		w := window{rest: rest, scratch: make([]Scratch, runtime.GOMAXPROCS(0))}
		most := firstWindow
		for o := range objects {
			if w.objects = append(w.objects, o); len(w.objects) < most {
				continue
			}
			if !w.yield(ctx, yield) {
				return
			}
			most = min(2*most, lastWindow)
		}
		w.yield(ctx, yield)
	}
}

// matchSerial matches one object at a time.
func matchSerial(ctx context.Context, objects iter.Seq[aggregate.Object], rest *residual) iter.Seq2[aggregate.Object, error] {
	return func(yield func(aggregate.Object, error) bool) {
		var scratch Scratch
		n := 0
		for o := range objects {
			if n++; n%lastWindow == 0 && ctx.Err() != nil {
				yield(aggregate.Object{}, ctx.Err())
				return
			}
			ok, err := rest.Match(o, &scratch)
			if err != nil {
				yield(aggregate.Object{}, err)
				return
			}
			if ok && !yield(o, nil) {
				return
			}
		}
	}
}

// window is a batch of objects to match.
type window struct {
	rest    *residual
	scratch []Scratch // one for each goroutine
	objects []aggregate.Object
	results []matchResult
}

type matchResult struct {
	ok  bool
	err error
}

// yield matches the window's objects, yields those that do, and empties it. It reports
// whether to continue.
func (w *window) yield(ctx context.Context, yield func(aggregate.Object, error) bool) bool {
	if err := ctx.Err(); err != nil {
		yield(aggregate.Object{}, err)
		return false
	}
	w.results = append(w.results[:0], make([]matchResult, len(w.objects))...)
	w.match(ctx)
	for i, r := range w.results {
		if r.err != nil {
			yield(aggregate.Object{}, r.err)
			return false
		}
		if r.ok && !yield(w.objects[i], nil) {
			return false
		}
	}
	w.objects = w.objects[:0]
	return true
}

func (w *window) match(ctx context.Context) {
	var next atomic.Int64
	some := func(scratch *Scratch) {
		for {
			to := int(next.Add(batchSize))
			for i := to - batchSize; i < min(to, len(w.objects)); i++ {
				w.results[i].ok, w.results[i].err = w.rest.Match(w.objects[i], scratch)
			}
			if to >= len(w.objects) {
				return
			}
		}
	}
	g, _ := panicgroup.WithContext(ctx, len(w.scratch))
	for i := 0; i < len(w.scratch) && i*batchSize < len(w.objects); i++ {
		g.Go(func() error {
			some(&w.scratch[i])
			return nil
		})
	}
	_ = g.Wait() //nolint:errcheck // results have the errors
}
