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
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
	"federator.dev/federator/pkg/tracing"
)

// ErrStopped is returned by Configure when the loop has stopped.
var ErrStopped = errors.New("the policy loop has stopped")

// Options configure a Loop.
type Options struct {
	Index    *aggregate.Index // required
	Set      *policy.Set      // required
	Bindings []policy.Binding
	Limits   policy.Limits

	// Peers is what other processes of the fleet have told of the members that they judge; nil for none. Members of
	// Index are judged where their Role says so, and only policies see Peers.
	Peers *aggregate.Index
	// Exports says that states have an Export, for other processes.
	Exports bool
	// KeyOwner says which keys of views are judged, until SetKeyOwner does. Zero: all.
	KeyOwner policy.KeyOwner
	// Subscribe says that Peers has only keys that policies read, as far as SetHeld has said: State.Wanted says which.
	Subscribe bool

	// External are the documents from outside the fleet, until SetExternal says; nil: nothing is known of them yet.
	External *policy.External

	// Changed is called with the changes of the verdicts by each batch, in order, on the
	// loop's goroutine. The batch is of Index, and empty where only Peers or keys have changed; it is nil where policies
	// or bindings were replaced, or everything was re-evaluated. May be nil.
	Changed func(*policy.Changes, *aggregate.Batch)
	Memory  Memory                // what outlasts the process; nil: nothing
	Tracer  *tracing.Tracer       // is told when batches were evaluated; nil: nobody is
	Clock   func() time.Time      // by which instants pass and exemptions end; nil means time.Now
	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none
}

// Memory keeps over a restart since when violations are there, and quarantines. It is called on the
// loop's goroutine, and does not block.
type Memory interface {
	policy.Memory
	// Record records how a call has changed the verdicts, and which quarantines there are.
	Record(*policy.Changes, []policy.KeptQuarantine)
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
	turn          turn
	owners        chan ownerRequest
	helds         chan heldRequest
	externals     chan externalRequest
	oldestPending atomic.Int64 // an upper bound, as UnixNano, of when the oldest change was committed that is not evaluated; 0: none

	heard atomic.Uint64 // the changes of Peers that are evaluated

	// Only Run uses the following.
	set      *policy.Set
	bindings []policy.Binding // including expired exemptions
	asOf     time.Time        // what the engine has is without exemptions that had expired by then
	timer    *time.Timer
	expires  time.Time      // when the next exemption does; zero: none
	retry    time.Time      // when a quarantine ends; zero: none
	wake     time.Time      // when the first instant passes that verdicts depend on; zero: none
	waiting  []chan<- error // of requests in effect whose verdicts the next reset makes
}

type request struct {
	set      *policy.Set
	bindings []policy.Binding
	done     chan error // buffered
}

type ownerRequest struct {
	owner policy.KeyOwner
	done  chan error // buffered
}

type heldRequest struct {
	held *interest.Set
	done chan error // buffered
}

// New returns a loop that does not run yet. It returns an error if policies and bindings do
// not fit each other.
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
		opts: opts, requests: make(chan request), owners: make(chan ownerRequest), helds: make(chan heldRequest), externals: make(chan externalRequest), stopped: make(chan struct{}),
		set: opts.Set, bindings: slices.Clone(opts.Bindings), history: newHistory(opts),
	}
	l.asOf = opts.Clock()
	var err error
	engine := policy.EngineOptions{Set: opts.Set, Bindings: l.current(l.asOf), Limits: opts.Limits, Clock: opts.Clock, Exports: opts.Exports, KeyOwner: opts.KeyOwner, Subscribe: opts.Subscribe, Causes: opts.Tracer != nil, External: opts.External}
	if opts.Memory != nil {
		engine.Memory = opts.Memory
	}
	l.engine, err = policy.NewEngine(engine)
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

// Explain says how a verdict of a state came about, as explain.Explain does.
func (l *Loop) Explain(ctx context.Context, s *policy.State, binding string, subject policy.Subject) (*explain.Explanation, error) {
	return explain.Explain(ctx, policy.EngineOptions{Set: s.Set(), Limits: l.opts.Limits, Parallelism: 1}, s, binding, subject)
}

// Stats returns the engine's counters as of the newest state.
func (l *Loop) Stats() policy.Stats {
	if s := l.stats.Load(); s != nil {
		return *s
	}
	return policy.Stats{}
}

// Configure replaces policies and bindings and returns when their verdicts are there. After
// an error the former ones stay.
func (l *Loop) Configure(ctx context.Context, set *policy.Set, bindings []policy.Binding) error {
	r := request{set: set, bindings: slices.Clone(bindings), done: make(chan error, 1)}
	return ask(ctx, l, l.requests, r, r.done)
}

// SetKeyOwner says which keys of views are judged from now on, and returns when their verdicts are there. It takes effect
// between batches.
func (l *Loop) SetKeyOwner(ctx context.Context, owner policy.KeyOwner) error {
	r := ownerRequest{owner: owner, done: make(chan error, 1)}
	return ask(ctx, l, l.owners, r, r.done)
}

// SetHeld says of which keys all is in Options.Peers, as far as Heard, and returns when what follows is evaluated. It takes effect
// between batches.
func (l *Loop) SetHeld(ctx context.Context, held *interest.Set) error {
	r := heldRequest{held: held, done: make(chan error, 1)}
	return ask(ctx, l, l.helds, r, r.done)
}

// Heard returns up to which of the Changes of Options.Peers is evaluated.
func (l *Loop) Heard() uint64 { return l.heard.Load() }

// ask hands a request to Run and waits for its answer.
func ask[T any](ctx context.Context, l *Loop, to chan<- T, r T, done <-chan error) error {
	select {
	case to <- r:
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run evaluates the changes of the index until the context ends, and returns when all that
// it started has ended. A loop runs once.
func (l *Loop) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return errors.New("policy loop: Run was called already")
	}
	defer close(l.stopped)
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	workers.Go(func() { _ = l.engine.Run(ctx) }) // its only error is the context's
	defer workers.Wait()
	defer cancel()
	l.timer = time.NewTimer(0)
	defer l.timer.Stop()
	l.watchIndex(ctx)
	return context.Cause(ctx)
}

// resetBackoff is how long the loop waits after a failed evaluation of everything.
const resetBackoff = time.Second

func (l *Loop) watchIndex(ctx context.Context) {
	var cursors *cursors
	for ctx.Err() == nil {
		if cursors == nil { // there is no state to continue from
			if cursors = l.reset(ctx); cursors == nil {
				continue
			}
			l.resetTimer()
		}
		ok := true
		select { // requests come before the next batch: there may always be one
		case r := <-l.requests:
			ok = l.configure(ctx, r)
		case r := <-l.owners:
			ok = l.setKeyOwner(ctx, r)
		case r := <-l.helds:
			ok = l.setHeld(ctx, r)
		case r := <-l.externals:
			ok = l.setExternal(ctx, r)
		case <-l.timer.C:
			ok = l.tick(ctx)
		default:
		}
		if ok {
			ok = l.next(ctx, cursors)
		}
		if !ok {
			cursors = nil
		}
	}
}

// next applies the next batch, or waits until there may be one. It reports whether the
// engine can continue.
func (l *Loop) next(ctx context.Context, c *cursors) bool {
	if ctx.Err() != nil {
		return true
	}
	if own, peers := c.poll(); own != nil || peers != nil {
		return l.apply(ctx, own, peers)
	}
	l.oldestPending.Store(0)
	own, peers := l.newer(c.after)
	select {
	case <-ctx.Done():
	case <-own:
		l.oldestPending.Store(l.opts.Clock().UnixNano())
	case <-peers:
		l.oldestPending.Store(l.opts.Clock().UnixNano())
	case r := <-l.owners:
		return l.setKeyOwner(ctx, r)
	case r := <-l.helds:
		return l.setHeld(ctx, r)
	case r := <-l.externals:
		return l.setExternal(ctx, r)
	case r := <-l.requests:
		return l.configure(ctx, r)
	case <-l.timer.C:
		return l.tick(ctx)
	}
	return true
}

// apply applies a batch of each index, nil for none, and reports whether the engine can continue.
func (l *Loop) apply(ctx context.Context, own, peers *aggregate.Batch) bool {
	l.turn.begin()
	defer l.turn.end()
	start := l.opts.Clock()
	changes, err := l.engine.Apply(ctx, own, peers)
	if err != nil {
		l.failed(ctx, err)
		return false
	}
	if peers != nil {
		l.heard.Store(peers.After.Changes())
	}
	if own == nil {
		own = changes.After.Snapshot.Still()
	}
	l.publish(changes, own, start)
	return true
}

// setKeyOwner changes which keys are judged and reports whether the engine can continue.
func (l *Loop) setKeyOwner(ctx context.Context, r ownerRequest) bool {
	return l.answer(ctx, r.done, func() (*policy.Changes, error) { return l.engine.SetKeyOwner(ctx, r.owner) })
}

// setHeld changes which keys are held and reports whether the engine can continue.
func (l *Loop) setHeld(ctx context.Context, r heldRequest) bool {
	if !l.opts.Subscribe {
		r.done <- errNoSubscription
		return true
	}
	return l.answer(ctx, r.done, func() (*policy.Changes, error) { return l.engine.SetHeld(ctx, r.held) })
}

var errNoSubscription = errors.New("policy loop: SetHeld without Options.Subscribe")

// answer has the engine take in what was asked for, and says when that is done.
func (l *Loop) answer(ctx context.Context, done chan<- error, take func() (*policy.Changes, error)) bool {
	l.turn.begin()
	defer l.turn.end()
	start := l.opts.Clock()
	changes, err := take()
	switch {
	case ctx.Err() != nil:
		done <- context.Cause(ctx)
		return false
	case err != nil: // it is in place, and everything is re-evaluated
		l.waiting = append(l.waiting, done)
		l.failed(ctx, err)
		return false
	}
	if changes != nil {
		l.publish(changes, changes.After.Snapshot.Still(), start)
	}
	done <- nil
	return true
}

// failed counts and logs an error that the engine cannot continue from, unless the loop ends.
func (l *Loop) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		l.metrics.resets.Inc()
		l.opts.Logger.Error("re-evaluating all policies", "error", err)
	}
}

// reset evaluates everything, and returns from where to go on. If that fails, which is nil, the last state stays until
// the next attempt.
func (l *Loop) reset(ctx context.Context) *cursors {
	start := l.opts.Clock()
	l.oldestPending.CompareAndSwap(0, start.UnixNano())
	l.turn.begin()
	at := l.newest()
	changes, err := l.engine.Reset(ctx, at.own, at.peers)
	l.turn.end()
	if err != nil {
		l.failed(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(resetBackoff):
		}
		return nil
	}
	if at.peers != nil {
		l.heard.Store(at.peers.Changes())
	}
	l.publish(changes, nil, start)
	for _, done := range l.waiting {
		done <- nil
	}
	l.waiting = nil
	return l.cursorsAt(at)
}

func (l *Loop) publish(changes *policy.Changes, batch *aggregate.Batch, start time.Time) {
	stats := l.engine.Stats()
	l.stats.Store(&stats)
	if s := l.engine.State(); !s.Retry.Equal(l.retry) || !s.Wake.Equal(l.wake) {
		l.retry, l.wake = s.Retry, s.Wake
		l.resetTimer()
	}
	// What is not evaluated yet was committed after this batch started.
	l.oldestPending.Store(start.UnixNano())
	l.history.record(changes)
	if l.opts.Memory != nil {
		l.opts.Memory.Record(changes, l.engine.Quarantines())
	}
	l.observe(changes, batch, start)
	if l.opts.Changed != nil {
		l.opts.Changed(changes, batch)
	}
	changes.ForgetCauses()
}

// observe says that a batch was evaluated, or everything.
func (l *Loop) observe(changes *policy.Changes, batch *aggregate.Batch, start time.Time) {
	now := l.opts.Clock()
	took := now.Sub(start).Seconds()
	if before, after := revisions(changes, batch); before < after {
		traced := l.opts.Tracer.Evaluated(tracing.Batch{
			Before: uint64(before), After: uint64(after),
			Started: tracing.At(start), Viewed: tracing.At(changes.Viewed), Evaluated: tracing.At(changes.Evaluated), Published: tracing.At(now),
		})
		if o, can := l.metrics.batches.(prometheus.ExemplarObserver); can && traced != nil {
			o.ObserveWithExemplar(took, traced)
			return
		}
	}
	l.metrics.batches.Observe(took)
}

// revisions returns what was evaluated: the changes after a revision, up to another. Without a batch that is what has changed since the state before.
func revisions(changes *policy.Changes, batch *aggregate.Batch) (before, after aggregate.Revision) {
	switch {
	case batch != nil:
		return batch.Before.Revision(), batch.After.Revision()
	case changes.Before == nil || changes.After == nil:
		return 0, 0
	}
	return changes.Before.Snapshot.Revision(), changes.After.Snapshot.Revision()
}

// configure replaces policies and bindings and reports whether the engine can continue.
func (l *Loop) configure(ctx context.Context, r request) bool {
	l.turn.begin()
	defer l.turn.end()
	start := l.opts.Clock()
	was, wasBindings, wasAsOf := l.set, l.bindings, l.asOf
	l.set, l.bindings, l.asOf = r.set, r.bindings, start
	changes, err := l.engine.Configure(ctx, r.set, l.current(start))
	l.resetTimer()
	switch {
	case ctx.Err() != nil:
		r.done <- context.Cause(ctx)
		return false
	case errors.Is(err, policy.ErrReset): // the new ones are in place, and everything is re-evaluated
		l.waiting = append(l.waiting, r.done)
		l.failed(ctx, err)
		return false
	case err != nil: // nothing has changed
		l.set, l.bindings, l.asOf = was, wasBindings, wasAsOf
		if l.resetTimer(); !l.expires.IsZero() && !start.Before(l.expires) {
			l.timer.Reset(resetBackoff) // not at once
		}
		r.done <- err
		return true
	}
	l.publish(changes, nil, start)
	r.done <- nil
	return true
}
