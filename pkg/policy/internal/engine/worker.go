package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/instants"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/projection"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
)

// query is a compiled query for one document. Any number of goroutines may use it.
type query struct {
	body     ast.Body
	compiler *ast.Compiler
	// program is the query compiled, nil where it has what is not: topdown evaluates it.
	program     *compiled.Program
	interpreted string // why it is not compiled
	// indexing is for queries that read no data: OPA's rule index reads complete
	// documents to choose among rules.
	indexing bool
	// lenient is for templates: an error of a builtin is undefined.
	lenient bool
	// key is for indexes: the variable whose values an object is found by.
	key ast.Var
}

// compile compiles the query to a program, if it can be. What is in use already is used
// again: the bindings of a package share one.
func (e *Engine) compile(q *query) {
	if e.opts.Interpreted {
		q.interpreted = "nothing is compiled"
		return
	}
	id := programID{q.compiler, q.body.String(), q.lenient}
	p, known := e.programs[id]
	if !known {
		out := cmp.Or(q.key, module.Answer)
		if p.program, p.err = compiled.Compile(q.compiler, q.body, []ast.Var{out}, module.CompileOptions(q.lenient)); p.err != nil {
			p.program = nil
		}
		if e.programs == nil {
			e.programs = map[programID]program{}
		}
		e.programs[id] = p
	}
	if q.program = p.program; p.err != nil {
		q.interpreted = p.err.Error()
		return
	}
	q.indexing = q.indexing && !p.program.Misindexed()
}

// programID is what a program was compiled of.
type programID struct {
	compiler *ast.Compiler
	query    string
	lenient  bool
}

type program struct {
	program *compiled.Program
	err     error
}

// dropPrograms forgets the programs that no query of the engine has.
func (e *Engine) dropPrograms() {
	used := map[*ast.Compiler]bool{}
	for _, b := range e.bindings {
		used[b.query.compiler] = true
	}
	for _, v := range e.views {
		used[v.query.compiler] = true
	}
	maps.DeleteFunc(e.programs, func(id programID, _ program) bool { return !used[id.compiler] })
}

// worker runs one evaluation at a time. Each evaluating goroutine has its own.
type worker struct {
	e           *Engine
	passID      int64 // of documents
	documents   documentCache
	memo        memo
	body        []byte
	otherBody   []byte
	before      []document.Digest // of what is read of the object of a delta
	after       []document.Digest
	kinds       map[string]module.KindRef // as policies write them
	names       map[aggregate.Kind]interest.Space
	lastRequest requestOf
	machine     compiled.Machine
	found       []value.Value                  // of the last evaluation
	keep        func(outs []value.Value) error // keepSolution
	objects     value.Arena                    // of the object whose body is loaded
	inputs      value.Arena                    // of the input of one evaluation
	evaluation  evaluation
	meter       budget.Meter
	trace       *trace              // nil but in Explain
	tracer      topdown.QueryTracer // that of the options, but in a sample
}

// evaluation is one evaluation: its own transaction, which records what it reads.
type evaluation struct {
	w           *worker
	binding     *boundBinding // nil for a view, which reads no data
	member      string        // that of the subject
	inventoryOf string        // the member whose inventory and Namespaces templates read
	budget      budget.Budget
	keys        []uint64
	asks        []ask
	reads       completeness.Builder
	wideReads   int64
	bytesRead   int64
}

// ID implements storage.Transaction.
func (*evaluation) ID() uint64 { return 1 }

// reset prepares the worker for the next evaluation.
func (w *worker) reset(b *boundBinding, member string) {
	ev := &w.evaluation
	ev.w, ev.binding, ev.member, ev.wideReads, ev.bytesRead = w, b, member, 0, 0
	ev.inventoryOf = cmp.Or(w.e.opts.InventoryMember, member)
	ev.budget = budget.Budget{}
	ev.keys, ev.asks = ev.keys[:0], ev.asks[:0]
	ev.reads.Reset()
}

// run evaluates a query within the budget and returns what it asks for, once for each
// solution: a document once, or not at all if it is undefined. The values live until the
// worker's next evaluation.
func (w *worker) run(ctx context.Context, q query, input value.Value) (found []value.Value, took time.Duration, err error) {
	defer w.meter.LockThread()()
	ev := &w.evaluation
	ev.budget = w.meter.Start(w.e.opts.Limits.Evaluation, ctx.Done())
	decided := false
	if q.program != nil && w.trace == nil && w.tracer == nil {
		decided, err = w.runProgram(q, input)
	}
	if !decided && !ev.budget.Spent() {
		err = w.interpret(ctx, q, input)
	}
	took, err = ev.budget.Elapsed(), ev.budget.Err(err)
	if err != nil {
		return nil, took, err
	}
	return w.found, took, nil
}

// runProgram evaluates a query that is compiled, and reports whether that decides: topdown
// has to where there is an error, which only topdown knows exactly, but for that of a limit.
// Where topdown chooses rules by an index, it may not evaluate what exceeds a limit.
func (w *worker) runProgram(q query, input value.Value) (decided bool, err error) {
	ev := &w.evaluation
	charged, wide := ev.bytesRead, ev.wideReads
	w.found = w.found[:0]
	err = w.machine.Run(q.program, compiled.Input{Input: input, Data: ev, Cancel: &ev.budget}, w.keep)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, limits.ErrLimit) && !q.indexing:
		return true, err
	}
	ev.bytesRead, ev.wideReads = charged, wide
	return false, nil
}

func (w *worker) keepSolution(outs []value.Value) error {
	w.found = append(w.found, outs[0])
	return nil
}

// interpret evaluates a query by topdown.
func (w *worker) interpret(ctx context.Context, q query, input value.Value) error {
	ev := &w.evaluation
	w.found = w.found[:0]
	if ev.binding != nil && w.trace == nil && w.tracer == nil {
		ev.binding.interpretedCount.Add(1)
	}
	return guard(func() error {
		term := input.Term()
		query := topdown.NewQuery(q.body).WithIndexing(q.indexing).WithCompiler(q.compiler).
			WithStore(engineStore{}).WithTransaction(ev).WithInput(term).WithCancel(&ev.budget).WithStrictBuiltinErrors(!q.lenient).
			WithMetrics(metrics.NoOp()).WithTime(epoch)
		if q.lenient {
			query = query.WithBuiltins(module.TemplateBuiltins)
		}
		if w.trace != nil {
			w.trace.attach(query, term)
		}
		if w.tracer != nil {
			query = query.WithQueryTracer(w.tracer)
		}
		return query.Iter(ctx, func(r topdown.QueryResult) error {
			w.found = append(w.found, value.Of(nil, r[cmp.Or(q.key, module.Answer)].Value))
			return nil
		})
	})
}

// guard turns a panic into an error: of one evaluation, not of all.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("evaluation panicked: %v", p)
		}
	}()
	return f()
}

// epoch is the time of all evaluations: no policy may read the clock.
var epoch = time.Unix(0, 1)

// result is the result of an evaluation.
type result struct {
	outcome    *state.Outcome // nil: clean
	readSet    *completeness.ReadSet
	keys       []uint64
	asks       []ask
	overBudget bool
}

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
			e.crew.add(w)
			defer e.crew.remove(w)
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
	return EvaluateFleet(ctx, opts, s, nil)
}

// EvaluateFleet returns the verdicts of bindings on a snapshot, and on one of what peers have told.
func EvaluateFleet(ctx context.Context, opts Options, own, peers *aggregate.Snapshot) (*state.State, error) {
	return evaluateAt(ctx, opts, fleetview.Of(own, peers, nil), nil, 0)
}

// evaluateAt evaluates as of a time before which opts may be. beside is what peers export, nil for what the policies
// read.
func evaluateAt(ctx context.Context, opts Options, s *fleetview.View, beside *projection.Plan, asOf int64) (*state.State, error) {
	e, err := New(opts)
	if err != nil {
		return nil, err
	}
	e.clock.AsOf = asOf
	err = e.runWorkers(ctx, func() error {
		e.beside = beside
		_, err := e.reset(ctx, s.With(e.knowledge()))
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

// crew are the workers of Run. Between jobs they belong to the goroutine that makes the engine's next call.
type crew struct {
	mu      sync.Mutex // guards workers
	workers []*worker
}

func (c *crew) add(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = append(c.workers, w)
}

func (c *crew) remove(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = slices.DeleteFunc(c.workers, func(x *worker) bool { return x == w })
}

// rest has all workers drop what only the evaluations of one snapshot share. No job is running.
func (e *Engine) rest() {
	e.callerWorker.rest()
	e.crew.mu.Lock()
	defer e.crew.mu.Unlock()
	for _, w := range e.crew.workers {
		w.rest()
	}
}

// parallel calls f for 0 to n-1 on the caller's goroutine and on idle ones of Run. It
// returns when all calls have returned, or an error when the context has ended.
func (e *Engine) parallel(ctx context.Context, n int, f func(w *worker, i int)) error {
	if n == 0 && ctx.Err() == nil {
		return nil
	}
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

// Sections of the keys that identify what an evaluation read.
const (
	readViewKey byte = iota
	readView
	readNamed      // by_name[kind][namespace][name], or a prefix
	readObject     // objects[kind][member][namespace][name], or a prefix
	readNames      // names
	readMembers    // members, whole, of a binding
	readMember     // members[name], whole or whether it is there, of a binding
	readAllScopes  // scopes, whole
	readScopes     // scopes[name]
	readScope      // scopes[name][kind]
	readMemberPart // members[name].labels, and so on; or one annotation, condition or field of a condition
	readIndex      // of a template: one key in a member
	readExists     // whether a kind has objects in a member
	readSource     // external[source], whole
	readDocument   // external[source][key], whole
	readShape      // external[source][key]: whether it is there, and an object
	readField      // external[source][key][field]
)

var keySeed = maphash.MakeSeed()

// readKey returns the hash that identifies a read other than of an instant.
func readKey(section byte, parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(keySeed)
	_ = h.WriteByte(section)
	for _, p := range parts {
		_, _ = h.WriteString(p)
		_ = h.WriteByte(0)
	}
	return h.Sum64() &^ instants.Bit
}

func viewKey(v *view, k string) uint64 { return readKey(readViewKey, viewName(v.ID), k) }

func wholeViewKey(v *view) uint64 { return readKey(readView, viewName(v.ID)) }

func viewName(id uint32) string {
	return string([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}) // Its bytes.
}

func (ev *evaluation) record(k uint64) { ev.keys = append(ev.keys, k) }
