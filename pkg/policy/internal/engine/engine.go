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

	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/deps"
	"federator.dev/federator/pkg/policy/internal/external"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/instants"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/projection"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/subscribed"
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
	external     *external.Documents
	subs         *subscribed.Table // what is asked of peers; nil: they tell everything
	takeovers    subscribed.Takeovers
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
	e := &Engine{opts: opts, owner: opts.KeyOwner, external: opts.External, nextID: 1, jobs: make(chan *job), memberInputs: map[string]value.Value{}}
	e.quarantine = quarantine.Rules{Overruns: opts.Limits.Overruns, Slow: opts.Limits.Slow, Processors: opts.Parallelism, Clock: opts.Clock}
	if opts.Subscribe {
		e.subs = subscribed.New(opts.Held)
	}
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
	if e.subs != nil {
		e.subs.Clear()
	}
	e.byObject = deps.New(func(b uint32, o aggregate.Object) uint64 {
		r := o.Ref()
		return readKey(byte(b), r.Member, string(r.Kind), r.Namespace, r.Name, string(rune(b>>8)))
	}, func(a, b aggregate.Object) bool { return a.Ref() == b.Ref() }, e.watchReads(0))
	e.bySubject = deps.New(func(b uint32, s verdict.Subject) uint64 {
		return readKey(byte(b), s.Ref.Member, s.Key, string(rune(b>>8)))
	}, func(a, b verdict.Subject) bool { return a == b }, e.watchReads(1))
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
	Asked, Awaited  int   // distinct reads of what others judge, and those of them of which this process has not all
	AskedBytes      int64 // that these take
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
	if e.subs != nil {
		s.Asked, s.Awaited, s.AskedBytes = e.subs.Size()
	}
	s.Pairs, s.Edges, s.DependencyBytes = p1+p2, e1+e2, b1+b2
	return s
}

// Options configure an Engine.
type Options struct {
	Set      *module.Set // required
	Bindings []binding.Binding
	Limits   Limits
	// Parallelism is how many goroutines evaluate while Run runs, including the
	// caller's. 0 means GOMAXPROCS.
	Parallelism int
	// CPU returns the CPU time that the calling thread has used, which bounds
	// evaluations. nil means that of the operating system.
	CPU func() time.Duration
	// Clock is the time by which instants pass, quarantines end and violations are first seen. nil means time.Now.
	Clock func() time.Time
	// AsOf is the time as of which everything is evaluated, for an engine whose time stands still. Zero means the
	// present time, by Clock.
	AsOf time.Time
	// InventoryMember is the member whose objects are data.inventory, and whose Namespaces those of the subjects of
	// templates are, whichever member these are in. It is for subjects that their cluster does not have yet, which
	// an inventory must not hold. Empty: the subject's own, or the entire fleet where the constraint says so.
	InventoryMember string
	// Exports says that states have an Export, which costs a little memory and time of each change.
	Exports bool
	// KeyOwner says which keys of views are subjects, until Engine.SetKeyOwner does. Zero: all.
	KeyOwner fleetview.KeyOwner
	// External are the documents from outside the fleet, until Engine.SetExternal says. nil: nothing is known of any yet, and what
	// reads them is Unknown.
	External *external.Documents
	// Subscribe says that peers tell only keys that they are asked for: State.Wanted says which, and what reads others is
	// Unknown. Held are those that they have told, until Engine.SetHeld says; nil: none. Without Subscribe peers tell everything.
	Subscribe bool
	Held      *interest.Set
	// Generated says that all subjects are what expansion of Gatekeeper makes, which constraints may select by source.
	Generated bool
	// Manifests says that constraints match subjects as "gator test" does: what is in no namespace is in one without
	// a name, and what is in one whose Namespace is not there violates each constraint that has to know its labels.
	Manifests bool
	// Memory is what an earlier process knew of its verdicts; nil for nothing.
	Memory Memory
	// Interpreted says that OPA interprets all policies, and nothing is compiled.
	Interpreted bool
	// Causes says that Changes tell which objects' changes verdicts were evaluated for, and when, by Clock, a call got where.
	Causes bool
	// Tracer sees what evaluations do, on all goroutines that evaluate; nil: nobody does.
	Tracer topdown.QueryTracer
}

// Memory is what an earlier process knew, or another one, or this one before it was in doubt. It is called by the engine's goroutine.
type Memory interface {
	// Recall returns the violations of a subject that are to be found again, with when they were first seen. It
	// is asked when a binding evaluates the subject for the first time, when it finds what was not there before, and again if that
	// call fails.
	Recall(binding string, s verdict.Subject) []state.Seen
	// Quarantines returns the quarantines of a binding or view whose rules have a digest, and forgets them.
	Quarantines(of, digest string) []KeptQuarantine
}

// Limits bound what policies may take. 0 means the default.
type Limits struct {
	Evaluation   time.Duration // CPU time of one evaluation: 100 ms
	Overruns     int           // evaluations that use that time without a result until the binding is quarantined for the member: 10
	Slow         time.Duration // total CPU time of the evaluations of one binding for one member that each use a tenth of Evaluation or more, until it is quarantined; it decays by what a quarter of the processors can do: 20 s
	Read         int64         // bytes of JSON that one evaluation reads of data.fleet: 64 MiB
	Result       int           // bytes of the violations of one evaluation: 1 MiB
	Violations   int           // of one evaluation: 1000
	Contribution int           // bytes that one object contributes to one view: 256 KiB
	View         int64         // bytes that one view holds: 512 MiB; beyond, only keys are held, for as much again
	Binding      int64         // bytes of the violations of one binding and of what its evaluations read, in total: 512 MiB
}

func withDefault[T int | int64 | time.Duration](x, def T) (T, error) {
	if x < 0 {
		return 0, fmt.Errorf("limit %v is negative", x)
	}
	if x == 0 {
		return def, nil
	}
	return x, nil
}

func (l *Limits) setDefaults() error {
	var errs [9]error
	l.Evaluation, errs[0] = withDefault(l.Evaluation, 100*time.Millisecond)
	l.Overruns, errs[1] = withDefault(l.Overruns, 10)
	l.Read, errs[2] = withDefault(l.Read, 64<<20)
	l.Result, errs[3] = withDefault(l.Result, 1<<20)
	l.Violations, errs[4] = withDefault(l.Violations, 1000)
	l.Contribution, errs[5] = withDefault(l.Contribution, 256<<10)
	l.View, errs[6] = withDefault(l.View, 512<<20)
	l.Binding, errs[7] = withDefault(l.Binding, 512<<20)
	l.Slow, errs[8] = withDefault(l.Slow, 20*time.Second)
	return errors.Join(errs[:]...)
}
