package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// ErrStopped is returned by Configure when the loop does not run any more.
var ErrStopped = errors.New("the policy loop has stopped")

// Options configure a Loop.
type Options struct {
	Index    *aggregate.Index // required
	Set      *policy.Set      // required
	Bindings []policy.Binding
	Limits   policy.Limits

	// Changed is told what each batch did to the verdicts, in order, on the loop's
	// goroutine, which waits for it. The batch is nil where policies or bindings were
	// exchanged, or all was evaluated anew. May be nil.
	Changed func(*policy.Changes, *aggregate.Batch)
	Clock   func() time.Time      // of exemptions; nil means time.Now
	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none
}

// Loop keeps a policy engine at the newest snapshot of an index.
type Loop struct {
	opts          Options
	engine        *policy.Engine
	requests      chan request
	stopped       chan struct{}
	running       atomic.Bool
	metrics       *metrics
	stats         atomic.Pointer[policy.Stats]
	history       history
	oldestPending atomic.Int64 // since when the oldest change waits that is not judged, as UnixNano at the latest; 0: there is none

	// What follows belongs to Run.
	set      *policy.Set
	bindings []policy.Binding // with exemptions that have expired
	expiry   *time.Timer
	retry    time.Time // when a quarantine ends; zero: there is none
}

type request struct {
	set      *policy.Set
	bindings []policy.Binding
	done     chan error // has room
}

// New returns a loop that does not run yet. Policies and bindings are held to each
// other here already.
func New(opts Options) (*Loop, error) {
	if opts.Index == nil {
		return nil, errors.New("policy loop: Index is required")
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Loop{
		opts: opts, requests: make(chan request), stopped: make(chan struct{}),
		set: opts.Set, bindings: slices.Clone(opts.Bindings), history: newHistory(opts),
	}
	var err error
	l.engine, err = policy.NewEngine(policy.EngineOptions{Set: opts.Set, Bindings: l.current(), Limits: opts.Limits, Clock: opts.Clock})
	if err != nil {
		return nil, err
	}
	l.metrics = newMetrics(l)
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(l.metrics); err != nil {
			return nil, fmt.Errorf("policy loop: metrics: %w", err)
		}
	}
	return l, nil
}

// State returns the newest state, nil before the first: one atomic load.
func (l *Loop) State() *policy.State { return l.engine.State() }

// Stats returns the engine's counters as of the newest state.
func (l *Loop) Stats() policy.Stats {
	if s := l.stats.Load(); s != nil {
		return *s
	}
	return policy.Stats{}
}

// current returns the bindings without exemptions that have expired.
func (l *Loop) current() []policy.Binding {
	now := l.opts.Clock()
	out := make([]policy.Binding, len(l.bindings))
	for i, b := range l.bindings {
		out[i] = b.At(now)
	}
	return out
}

// Configure exchanges policies and bindings and returns when there are verdicts of
// them, or with the error for which the former ones stay.
func (l *Loop) Configure(ctx context.Context, set *policy.Set, bindings []policy.Binding) error {
	r := request{set: set, bindings: slices.Clone(bindings), done: make(chan error, 1)}
	select {
	case l.requests <- r:
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run follows the index until the context ends, and returns when all that it
// started has ended. A loop runs once.
func (l *Loop) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return errors.New("policy loop: it has run already")
	}
	defer close(l.stopped)
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	workers.Go(func() { _ = l.engine.Run(ctx) }) // its only error is the context's
	defer workers.Wait()
	defer cancel()
	l.expiry = time.NewTimer(0)
	defer l.expiry.Stop()
	l.watchIndex(ctx)
	return context.Cause(ctx)
}

// resetBackoff is how long the loop waits after an evaluation of everything has failed.
const resetBackoff = time.Second

func (l *Loop) watchIndex(ctx context.Context) {
	var cursor *aggregate.Cursor
	for ctx.Err() == nil {
		if cursor == nil { // nothing can be gone on from
			if !l.reset(ctx) {
				continue
			}
			cursor = l.opts.Index.Cursor(l.engine.State().Snapshot)
			l.resetTimer()
		}
		ok := true
		select { // whoever waits comes before the next batch: there may always be one
		case r := <-l.requests:
			ok = l.configure(ctx, r)
		case <-l.expiry.C:
			ok = l.expire(ctx)
		default:
		}
		if ok {
			ok = l.next(ctx, cursor)
		}
		if !ok {
			cursor = nil
		}
	}
}

// next takes in the next batch, or waits until there may be one. It reports whether the
// engine can go on.
func (l *Loop) next(ctx context.Context, cursor *aggregate.Cursor) bool {
	if ctx.Err() != nil {
		return true
	}
	if batch, some := cursor.Poll(); some {
		return l.apply(ctx, batch)
	}
	l.oldestPending.Store(0)
	select {
	case <-ctx.Done():
	case <-l.opts.Index.Newer(l.engine.State().Snapshot):
		l.oldestPending.Store(l.opts.Clock().UnixNano())
	case r := <-l.requests:
		return l.configure(ctx, r)
	case <-l.expiry.C:
		return l.expire(ctx)
	}
	return true
}

// expire goes on without the exemptions that have expired, and with what quarantines held
// back that have ended.
func (l *Loop) expire(ctx context.Context) bool {
	return l.configure(ctx, request{set: l.set, bindings: l.bindings, done: make(chan error, 1)})
}

// apply takes in one batch and reports whether the engine can go on.
func (l *Loop) apply(ctx context.Context, batch *aggregate.Batch) bool {
	began := l.opts.Clock()
	changes, err := l.engine.Apply(ctx, batch)
	if err != nil {
		l.failed(ctx, err)
		return false
	}
	l.publish(changes, batch, began)
	return true
}

// failed takes note of what the engine cannot go on from, unless the loop ends.
func (l *Loop) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		l.metrics.resets.Inc()
		l.opts.Logger.Error("policies are evaluated anew", "err", err)
	}
}

// reset evaluates everything. When that fails, the last state stays for a while.
func (l *Loop) reset(ctx context.Context) bool {
	began := l.opts.Clock()
	l.oldestPending.CompareAndSwap(0, began.UnixNano())
	changes, err := l.engine.Reset(ctx, l.opts.Index.Snapshot())
	if err != nil {
		l.failed(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(resetBackoff):
		}
		return false
	}
	l.publish(changes, nil, began)
	return true
}

func (l *Loop) publish(changes *policy.Changes, batch *aggregate.Batch, began time.Time) {
	stats := l.engine.Stats()
	l.stats.Store(&stats)
	if at := l.engine.State().Retry; !at.Equal(l.retry) {
		l.retry = at
		l.resetTimer()
	}
	// What has not been judged now came after this batch.
	l.oldestPending.Store(began.UnixNano())
	l.history.record(changes)
	l.metrics.batches.Observe(l.opts.Clock().Sub(began).Seconds())
	if l.opts.Changed != nil {
		l.opts.Changed(changes, batch)
	}
}

// configure exchanges policies and bindings and reports whether the engine can go on.
func (l *Loop) configure(ctx context.Context, r request) bool {
	began := l.opts.Clock()
	was, wasBindings := l.set, l.bindings
	l.set, l.bindings = r.set, r.bindings
	changes, err := l.engine.Configure(ctx, r.set, l.current())
	l.resetTimer()
	switch {
	case ctx.Err() != nil:
		r.done <- context.Cause(ctx)
		return false
	case errors.Is(err, policy.ErrReset): // the new ones are in place, and all is evaluated
		r.done <- nil
		l.failed(ctx, err)
		return false
	case err != nil: // nothing has changed
		l.set, l.bindings = was, wasBindings
		l.resetTimer()
		r.done <- err
		return true
	}
	l.publish(changes, nil, began)
	r.done <- nil
	return true
}

// resetTimer sets the timer to when the next exemption expires, or quarantine ends.
func (l *Loop) resetTimer() {
	now := l.opts.Clock()
	next := now.Add(24 * time.Hour)
	if !l.retry.IsZero() && l.retry.Before(next) {
		next = l.retry
	}
	for _, b := range l.bindings {
		for _, e := range b.Exemptions {
			if !e.Expires.IsZero() && e.Expires.After(now) && e.Expires.Before(next) {
				next = e.Expires
			}
		}
	}
	l.expiry.Reset(next.Sub(now))
}
