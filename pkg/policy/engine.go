package policy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/deps"
)

// Errors of the engine that callers branch on.
var (
	// ErrReset is returned after a call that was interrupted, and for batches that
	// do not follow on the engine's state: Reset brings it back.
	ErrReset = errors.New("policy engine must be reset")
	// ErrBusy is returned for a call beside another one.
	ErrBusy = errors.New("policy engine is busy")
)

// EngineOptions configure an Engine.
type EngineOptions struct {
	Set      *Set // required
	Bindings []Binding
	Limits   Limits
	// Parallelism is how many goroutines evaluate while Run runs, the caller's
	// included. 0 means GOMAXPROCS.
	Parallelism int
	// CPU tells how much CPU time the calling thread has used, by which evaluations
	// are limited. nil means that the system tells.
	CPU func() time.Duration
	// Clock tells when quarantines end. nil means time.Now.
	Clock func() time.Time
}

// Limits bound what policies may take. 0 means the default.
type Limits struct {
	Evaluation   time.Duration // CPU time of one evaluation: 100 ms
	Overruns     int           // how often that time may be used without an answer until the binding is quarantined for the member: 10
	Slow         time.Duration // CPU time of the evaluations of one binding for one member that use a tenth of Evaluation or more, until it is quarantined; as much is forgiven as a quarter of the processors could do meanwhile: 20 s
	Read         int64         // bytes of JSON that one evaluation reads of data.fleet: 64 MiB
	Result       int           // bytes of the violations of one evaluation: 1 MiB
	Violations   int           // of one evaluation: 1000
	Contribution int           // bytes that one object contributes to one view: 256 KiB
	View         int64         // bytes that one view holds: 512 MiB; keys of what is beyond are held for as much again
	Binding      int64         // bytes of the violations of one binding and of what its evaluations read, in sum: 512 MiB
}

func or[T int | int64 | time.Duration](x, def T) (T, error) {
	if x < 0 {
		return 0, fmt.Errorf("limit %v is negative", x)
	}
	if x == 0 {
		return def, nil
	}
	return x, nil
}

func (l *Limits) complete() error {
	var errs [9]error
	l.Evaluation, errs[0] = or(l.Evaluation, 100*time.Millisecond)
	l.Overruns, errs[1] = or(l.Overruns, 10)
	l.Read, errs[2] = or(l.Read, 64<<20)
	l.Result, errs[3] = or(l.Result, 1<<20)
	l.Violations, errs[4] = or(l.Violations, 1000)
	l.Contribution, errs[5] = or(l.Contribution, 256<<10)
	l.View, errs[6] = or(l.View, 512<<20)
	l.Binding, errs[7] = or(l.Binding, 512<<20)
	l.Slow, errs[8] = or(l.Slow, 20*time.Second)
	return errors.Join(errs[:]...)
}

// Engine keeps the verdicts of bindings on a fleet, exact, at a cost that follows
// what changes.
//
// Reset, Apply and Configure belong to one goroutine; State is for any. Run owns the
// goroutines that evaluate beside the caller's; without it the caller's does it all.
type Engine struct {
	opts  EngineOptions
	calls sync.Mutex // held by Reset, Apply and Configure
	state atomic.Pointer[State]
	jobs  chan *job

	// What follows belongs to the call. While it evaluates, workers read it.
	set         *Set
	prints      map[string]string // of its packages
	bounds      []*bound          // by name
	byID        map[uint32]*bound
	kinds       []aggregate.Kind // that policies name
	views       []*view          // by package, then name
	plans       map[aggregate.Kind]*plan
	nextID      uint32
	caller      *worker
	snapshot    *aggregate.Snapshot
	round       int64 // of documents that workers cache
	gaps        *gaps
	classes     classes
	byObject    *deps.Table[aggregate.Object]
	bySubject   *deps.Table[Subject] // of members and keys
	memberTerms map[string]*ast.Term
	synced      bool
	broken      bool

	viewEvaluations atomic.Int64
	skipped         atomic.Int64
	shared          atomic.Int64
}

// NewEngine returns an engine without a snapshot: Reset gives it one.
func NewEngine(opts EngineOptions) (*Engine, error) {
	if opts.Set == nil {
		return nil, errors.New("policy engine: Set is required")
	}
	if opts.Parallelism < 0 {
		return nil, errors.New("policy engine: Parallelism is negative")
	}
	if err := opts.Limits.complete(); err != nil {
		return nil, fmt.Errorf("policy engine: %w", err)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Parallelism == 0 {
		opts.Parallelism = runtime.GOMAXPROCS(0)
	}
	e := &Engine{opts: opts, jobs: make(chan *job), classes: classes{byKey: map[string]*class{}}, memberTerms: map[string]*ast.Term{}}
	e.caller = e.worker()
	e.clear()
	bounds, views, _, err := e.plan(opts.Set, opts.Bindings)
	if err != nil {
		return nil, err
	}
	e.install(opts.Set, bounds, views)
	return e, nil
}

func (e *Engine) worker() *worker {
	w := &worker{e: e, meter: meter{cpu: e.opts.CPU, exact: e.opts.CPU != nil}}
	if w.meter.cpu == nil {
		w.meter.cpu = threadTime
	}
	return w
}

func (e *Engine) clear() {
	e.byObject = deps.New(func(b uint32, o aggregate.Object) uint64 {
		r := o.Ref()
		return key(byte(b), r.Member, string(r.Kind), r.Namespace, r.Name, string(rune(b>>8)))
	}, func(a, b aggregate.Object) bool { return a.Ref() == b.Ref() })
	e.bySubject = deps.New(func(b uint32, s Subject) uint64 {
		return key(byte(b), s.Ref.Member, s.Key, string(rune(b>>8)))
	}, func(a, b Subject) bool { return a == b })
}

// State returns the newest state, nil before the first Reset: one atomic load.
func (e *Engine) State() *State { return e.state.Load() }

// Run runs the goroutines that evaluate beside the caller of Reset, Apply and
// Configure, until the context ends, and returns when all of them are gone.
func (e *Engine) Run(ctx context.Context) error {
	return e.run(ctx, func() error {
		<-ctx.Done()
		return nil
	})
}

func (e *Engine) run(ctx context.Context, body func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range e.opts.Parallelism - 1 {
		wg.Go(func() {
			w := e.worker()
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
func Evaluate(ctx context.Context, opts EngineOptions, s *aggregate.Snapshot) (*State, error) {
	e, err := NewEngine(opts)
	if err != nil {
		return nil, err
	}
	err = e.run(ctx, func() error {
		_, err := e.Reset(ctx, s)
		return err
	})
	return e.State(), err
}

// job is work that goroutines share: f of 0 to n-1.
type job struct {
	n    int
	next atomic.Int64
	stop <-chan struct{}
	f    func(w *worker, i int)
	done sync.WaitGroup
	bad  atomic.Pointer[error] // a panic
}

func (j *job) work(w *worker) {
	defer w.meter.hold()()
	defer w.forget()
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
		if err := guard(func() error { j.f(w, i); return nil }); err != nil {
			j.bad.Store(&err)
			return
		}
	}
}

// each calls f for 0 to n-1 on the caller's goroutine and on those of Run that are
// idle. It returns when all calls have, or an error when the context has ended.
func (e *Engine) each(ctx context.Context, n int, f func(w *worker, i int)) error {
	j := &job{n: n, stop: ctx.Done(), f: f}
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
	j.work(e.caller)
	j.done.Wait()
	if err := j.bad.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrReset, *err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Stats are counters of an engine's work since it was made, and its present size.
type Stats struct {
	Evaluations     int64 // of bindings
	Shared          int64 // of these, those that took over what was found for an object that is alike
	ViewEvaluations int64
	Reads           int64 // that evaluations made beside their own object, the same once for each
	Unchanged       int64 // evaluations saved because nothing that a policy reads changed
	Pairs, Edges    int   // of what evaluations read beside their own object
	DependencyBytes int64
	ViewBytes       int64 // of entries that are held, estimated
	Bindings, Views int
	Classes         int // of what verdicts read, by completeness
}

// Stats returns the engine's counters. It belongs to the goroutine of Apply.
func (e *Engine) Stats() Stats {
	s := Stats{Shared: e.shared.Load(), ViewEvaluations: e.viewEvaluations.Load(), Unchanged: e.skipped.Load(), Bindings: len(e.bounds), Views: len(e.views), Classes: len(e.classes.byKey)}
	for _, b := range e.bounds {
		s.Evaluations += b.evaluations.Load()
		s.Reads += b.reads.Load()
	}
	for _, v := range e.views {
		s.ViewBytes += v.held
	}
	p1, e1, b1 := e.byObject.Size()
	p2, e2, b2 := e.bySubject.Size()
	s.Pairs, s.Edges, s.DependencyBytes = p1+p2, e1+e2, b1+b2
	return s
}
