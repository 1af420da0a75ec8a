package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
)

// query is a compiled query for one document. Any number of goroutines may use it.
type query struct {
	body     ast.Body
	compiler *ast.Compiler
	// indexing is for queries that read no data: OPA's rule index reads complete
	// documents to choose among rules.
	indexing bool
	// lenient is for templates: an error of a builtin is undefined.
	lenient bool
	// key is for indexes: the variable whose values an object is found by.
	key ast.Var
}

const answer = ast.Var("answer")

func prepare(c *ast.Compiler, path string, indexing bool) (query, error) {
	body, err := ast.ParseBody(string(answer) + " = data." + path)
	if err != nil {
		return query{}, err
	}
	compiled, err := c.QueryCompiler().Compile(body)
	return query{body: compiled, compiler: c, indexing: indexing}, err
}

// worker runs one evaluation at a time. Each evaluating goroutine has its own.
type worker struct {
	e          *Engine
	passID     int64 // of documents
	documents  documentCache
	memo       memo
	body       []byte
	otherBody  []byte
	pruned     [2][]byte                 // results of bodies
	kinds      map[string]module.KindRef // as policies write them
	evaluation evaluation
	meter      budget.Meter
	trace      *trace              // nil but in Explain
	tracer     topdown.QueryTracer // nil but in a sample
}

// evaluation is one evaluation: its own transaction, which records what it reads.
type evaluation struct {
	w         *worker
	binding   *boundBinding // nil for a view, which reads no data
	member    string        // that of the subject
	budget    budget.Budget
	keys      []uint64
	reads     completeness.Builder
	wideReads int64
	bytesRead int64
}

// ID implements storage.Transaction.
func (*evaluation) ID() uint64 { return 1 }

// reset prepares the worker for the next evaluation.
func (w *worker) reset(b *boundBinding, member string) {
	ev := &w.evaluation
	ev.w, ev.binding, ev.member, ev.wideReads, ev.bytesRead = w, b, member, 0, 0
	ev.budget = budget.Budget{}
	ev.keys = ev.keys[:0]
	ev.reads.Reset()
}

// run evaluates a query within the budget and returns its document, or nil when that is
// undefined. The result holds on to nothing of the worker.
func (w *worker) run(ctx context.Context, q query, input *ast.Term) (v ast.Value, took time.Duration, err error) {
	defer w.meter.LockThread()()
	ev := &w.evaluation
	ev.budget = w.meter.Start(w.e.opts.Limits.Evaluation, ctx.Done())
	err = guard(func() error {
		query := topdown.NewQuery(q.body).WithIndexing(q.indexing).WithCompiler(q.compiler).
			WithStore(engineStore{}).WithTransaction(ev).WithInput(input).WithCancel(&ev.budget).WithStrictBuiltinErrors(!q.lenient).
			WithMetrics(metrics.NoOp()).WithTime(epoch)
		if q.lenient {
			query = query.WithBuiltins(templateBuiltins)
		}
		if w.trace != nil {
			w.trace.attach(query, input)
		}
		if w.tracer != nil {
			query = query.WithQueryTracer(w.tracer)
		}
		return query.Iter(ctx, func(r topdown.QueryResult) error {
			if q.key != "" {
				v = addKey(v, r[q.key])
			} else {
				v = r[answer].Value
			}
			return nil
		})
	})
	took, err = ev.budget.Elapsed(), ev.budget.Err(err)
	if err != nil {
		v = nil
	}
	return v, took, err
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
	overBudget bool
}
