// Package engine keeps the verdicts of bindings on a fleet, incrementally. A call
// (Reset, Apply, Configure) is one pass from a state to the next:
//
//   - materialised views take in what the changed objects contribute now;
//   - the reverse table of reads says which subjects read what changed;
//   - workers evaluate these in parallel against the pass's snapshot, and record what
//     they read;
//   - the results are taken in, in order, and one State is published.
//
// A pass belongs to its caller's goroutine; workers only read the engine.
package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/deps"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/instants"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/projection"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Errors of the engine that callers branch on.
var (
	// ErrReset is returned after a call that was interrupted, and for batches that
	// do not start at the engine's snapshot: Reset recovers from it.
	ErrReset = errors.New("policy engine must be reset")
	// ErrBusy is returned for a call during another one.
	ErrBusy = errors.New("policy engine is busy")
)

// Engine keeps the verdicts of bindings on a fleet exact, at a cost proportional to
// what changes.
//
// Reset, Apply and Configure belong to one goroutine; any goroutine may call State. Run
// owns the goroutines that evaluate concurrently with the caller's; without it the
// caller's does all the work.
type Engine struct {
	opts       Options
	quarantine quarantine.Rules

	calls sync.Mutex // held by Reset, Apply and Configure
	state atomic.Pointer[state.State]
	jobs  chan *job

	// The fields below belong to the running call. While it evaluates, workers read them.
	set          *module.Set
	fingerprints map[string]string // of its packages
	bindings     []*boundBinding   // by name
	byID         map[uint32]*boundBinding
	kinds        []aggregate.Kind // that policies name, for gaps
	views        []*view          // by package, then name
	kindPlans    map[aggregate.Kind]*kindPlan
	nextID       uint32
	callerWorker *worker
	crew         crew
	fleet        *fleetview.View // the snapshot; nil before the first Reset
	projections  *projection.Plan
	owner        fleetview.KeyOwner
	beside       *projection.Plan // what peers export, where that is not what this engine reads; nil: it is
	passID       int64            // identifies the pass whose documents workers cache
	clock        instants.Clock
	gaps         *completeness.Gaps
	readSets     completeness.ReadSets
	sharing      state.Sharing
	instants     instants.Set
	byObject     *deps.Table[aggregate.Object]
	bySubject    *deps.Table[verdict.Subject] // of members and keys
	memberInputs map[string]value.Value
	memberParts  fleetdoc.Parts // that memberInputs have
	synced       bool
	needsReset   bool
	programs     map[programID]program       // of the queries
	wait         func(context.Context) error // before each evaluation; nil: nothing is waited for

	viewEvaluations atomic.Int64
	viewNanoseconds atomic.Int64
	unchanged       atomic.Int64
	memoized        atomic.Int64
}

// New returns an engine without a snapshot: Reset gives it one.
func New(opts Options) (*Engine, error) {
	if opts.Set == nil {
		return nil, errors.New("policy engine: Set is required")
	}
	if opts.Parallelism < 0 {
		return nil, errors.New("policy engine: Parallelism is negative")
	}
	if err := opts.Limits.setDefaults(); err != nil {
		return nil, fmt.Errorf("policy engine: %w", err)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if !opts.AsOf.IsZero() && opts.AsOf.Unix() < 1 {
		return nil, errors.New("policy engine: AsOf is before 1970")
	}
	if opts.Parallelism == 0 {
		opts.Parallelism = runtime.GOMAXPROCS(0)
	}
	e := &Engine{opts: opts, owner: opts.KeyOwner, nextID: 1, jobs: make(chan *job), memberInputs: map[string]value.Value{}}
	e.quarantine = quarantine.Rules{Overruns: opts.Limits.Overruns, Slow: opts.Limits.Slow, Processors: opts.Parallelism, Clock: opts.Clock}
	e.readSets.Clear()
	e.callerWorker = e.newWorker()
	e.resetReads()
	bound, views, _, err := e.plan(opts.Set, opts.Bindings)
	if err != nil {
		return nil, err
	}
	e.install(opts.Set, bound, views)
	return e, nil
}

// wall returns the time of the caller's clock.
func (e *Engine) wall() time.Time {
	if !e.opts.AsOf.IsZero() {
		return e.opts.AsOf
	}
	return e.opts.Clock()
}

// clockOf returns a time as instants.Clock has it: after 1970, whatever the clock.
func clockOf(t time.Time) int64 { return max(1, t.Unix()) }

func (e *Engine) newWorker() *worker {
	w := &worker{e: e, meter: budget.NewMeter(e.opts.CPU), tracer: e.opts.Tracer}
	w.keep = w.keepSolution
	return w
}

func (e *Engine) resetReads() {
	e.instants = instants.NewSet()
	e.byObject = deps.New(func(b uint32, o aggregate.Object) uint64 {
		r := o.Ref()
		return readKey(byte(b), r.Member, string(r.Kind), r.Namespace, r.Name, string(rune(b>>8)))
	}, func(a, b aggregate.Object) bool { return a.Ref() == b.Ref() }, e.instants.Watch(0))
	e.bySubject = deps.New(func(b uint32, s verdict.Subject) uint64 {
		return readKey(byte(b), s.Ref.Member, s.Key, string(rune(b>>8)))
	}, func(a, b verdict.Subject) bool { return a == b }, e.instants.Watch(1))
}

// State returns the newest state, nil before the first Reset: one atomic load.
func (e *Engine) State() *state.State { return e.state.Load() }

// Stats are counters of an engine's work since it was created, and its present size.
type Stats struct {
	Evaluations     int64 // of bindings
	Memoized        int64 // of these, the ones answered by the memo
	ViewEvaluations int64
	Reads           int64 // distinct ones per evaluation, its own object aside
	Unchanged       int64 // evaluations skipped because nothing that a policy reads changed
	Pairs, Edges    int   // of the dependency table
	DependencyBytes int64
	Instants        int   // that verdicts have read and that have not passed; about 20 bytes each
	ViewBytes       int64 // of entries that are held, estimated
	Bindings, Views int
	ReadSets        int // distinct ones
}

// Stats returns the engine's counters. It belongs to the goroutine of Apply.
func (e *Engine) Stats() Stats {
	s := Stats{Memoized: e.memoized.Load(), ViewEvaluations: e.viewEvaluations.Load(), Unchanged: e.unchanged.Load(), Bindings: len(e.bindings), Views: len(e.views), ReadSets: e.readSets.Len()}
	for _, b := range e.bindings {
		s.Evaluations += b.evaluations.Load()
		s.Reads += b.reads.Load()
	}
	for _, v := range e.views {
		s.ViewBytes += v.Held
	}
	p1, e1, b1 := e.byObject.Size()
	p2, e2, b2 := e.bySubject.Size()
	s.Instants = e.instants.Len()
	s.Pairs, s.Edges, s.DependencyBytes = p1+p2, e1+e2, b1+b2
	return s
}
