package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
)

// query is a compiled query of one document, for any number of goroutines.
type query struct {
	body     ast.Body
	compiler *ast.Compiler
	// OPA's rule index reads documents of data whole to choose among rules: it is for
	// queries that read none.
	indexing bool
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

// worker evaluates, one thing at a time. Each goroutine that evaluates has its own.
type worker struct {
	e     *Engine
	round int64 // of docs
	docs  docCache
	twins twins
	body  []byte
	other []byte
	parts [2][]byte                 // of both
	kinds map[string]module.KindRef // as policies write them
	eval  evaluation
	meter meter
	trace *trace // nil but in Explain
}

// evaluation is one evaluation: its own transaction, which records what it reads.
type evaluation struct {
	w       *worker
	b       *bound // nil for a view, which reads no data
	subject string // the member of the subject
	budget  budget
	keys    []uint64
	reading reading
	wide    int64
	bytes   int64
}

// ID implements storage.Transaction.
func (*evaluation) ID() uint64 { return 1 }

// begin forgets the last evaluation.
func (w *worker) begin(b *bound, member string) {
	ev := &w.eval
	ev.w, ev.b, ev.subject, ev.wide, ev.bytes = w, b, member, 0, 0
	ev.budget = budget{}
	ev.keys = ev.keys[:0]
	ev.reading.reset()
}

// run evaluates a query within the budget and returns its document, or nil when it
// is undefined. What is returned keeps nothing of the worker.
func (w *worker) run(ctx context.Context, q query, input *ast.Term) (v ast.Value, took time.Duration, err error) {
	defer w.meter.hold()()
	ev := &w.eval
	ev.budget = w.meter.begin(w.e.opts.Limits.Evaluation, ctx.Done())
	err = guard(func() error {
		query := topdown.NewQuery(q.body).WithIndexing(q.indexing).WithCompiler(q.compiler).
			WithStore(engineStore{}).WithTransaction(ev).WithInput(input).WithCancel(&ev.budget).WithStrictBuiltinErrors(true).
			WithMetrics(metrics.NoOp()).WithTime(epoch)
		if w.trace != nil {
			w.trace.attach(query, input)
		}
		return query.Iter(ctx, func(r topdown.QueryResult) error {
			v = r[answer].Value
			return nil
		})
	})
	took, err = time.Since(ev.budget.begun), ev.budget.err(err)
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

// result is what an evaluation found.
type result struct {
	found *found // nil: nothing to say
	class *class
	keys  []uint64
	over  bool // the budget
}

// found is what a verdict has to say beside its state. Immutable.
type found struct {
	violations []Violation
	err        string
	held       string // the member whose quarantine holds the evaluation back
	revision   aggregate.Revision
}

func sameFound(a, b *found) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.err == b.err && a.held == b.held && sameViolations(a.violations, b.violations)
}

// judge evaluates a binding for one subject.
func (w *worker) judge(ctx context.Context, b *bound, t *task, object *ast.Term) result {
	if member, why := b.held(t.subject); why != "" {
		return result{found: &found{err: fmt.Sprintf("member %q: %s", member, why), held: member}}
	}
	defer w.meter.hold()()
	w.begin(b, t.subject.Ref.Member)
	input, err := w.input(b, t, object)
	var v ast.Value
	var took time.Duration
	if err == nil {
		v, took, err = w.run(ctx, b.query, input)
	}
	r := &w.eval.reading
	if b.pkg.Subject == module.ObjectSubject {
		r.own = add(r.own, t.subject.Ref.Kind)
	}
	b.evaluations.Add(1)
	b.nanoseconds.Add(int64(took))
	b.wide.Add(w.eval.wide)
	over := errors.Is(err, errBudget)
	if over {
		b.overruns.Add(1)
	}
	out := result{class: w.e.classes.intern(r), over: over}
	slices.Sort(w.eval.keys)
	if keys := slices.Compact(w.eval.keys); len(keys) > 0 {
		out.keys = slices.Clone(keys)
		b.reads.Add(int64(len(keys)))
	}
	var violations []Violation
	if err == nil {
		err = guard(func() (err error) {
			violations, err = b.violations(v, t, &w.e.opts.Limits)
			return err
		})
	}
	if c := w.eval.budget.cost(err); !c.none() || b.score.some.Load() {
		b.score.count(b.blamed(t.subject), c, &w.e.opts)
	}
	switch {
	case err != nil:
		b.errors.Add(1)
		out.found = &found{err: err.Error()}
	case len(violations) > 0:
		if reason := b.sel.exempt(b.pkg.Subject, t.subject, t.object, w.e.member(t.subject.Ref.Member)); reason != "" {
			for i := range violations {
				violations[i].Exempt = reason
			}
		}
		out.found = &found{violations: violations}
	}
	return out
}

var inputKeys = struct{ ref, object, member, parameters, key, entries, name, labels *ast.Term }{
	ast.InternedTerm("ref"), ast.InternedTerm("object"), ast.InternedTerm("member"), ast.InternedTerm("parameters"),
	ast.InternedTerm("key"), ast.InternedTerm("entries"), ast.InternedTerm("name"), ast.InternedTerm("labels"),
}

// input makes the input document of a binding and a subject.
func (w *worker) input(b *bound, t *task, object *ast.Term) (*ast.Term, error) {
	items := make([][2]*ast.Term, 0, 4)
	items = append(items, ast.Item(inputKeys.parameters, b.sel.params))
	switch b.pkg.Subject {
	case module.ObjectSubject:
		if err := pinned(b.pins, t.object); err != nil {
			return nil, err
		}
		items = append(items, ast.Item(inputKeys.ref, refTerm(&t.subject.Ref)))
		if object != nil {
			items = append(items, ast.Item(inputKeys.object, object))
		}
		items = append(items, ast.Item(inputKeys.member, w.e.memberTerms[t.subject.Ref.Member]))
	case module.MemberSubject:
		items = append(items, ast.Item(inputKeys.member, w.e.memberTerms[t.subject.Ref.Member]))
	case module.ViewSubject:
		w.eval.reading.views = add(w.eval.reading.views, b.view.id)
		entries, err := w.entries(b, t.subject.Key)
		if err != nil {
			return nil, err
		}
		items = append(items, ast.Item(inputKeys.key, ast.StringTerm(t.subject.Key)), ast.Item(inputKeys.entries, entries))
	}
	return ast.NewTerm(ast.NewObject(items...)), nil
}

// entries are those of a key whose objects the binding selects.
func (w *worker) entries(b *bound, key string) (*ast.Term, error) {
	if b.view.over != "" {
		return nil, errors.New(b.view.excess())
	}
	var list []*ast.Term
	size := 0
	for e := range b.view.under(key) {
		if !b.counts(e, w.e.snapshot) {
			continue
		}
		if size += len(e.values); int64(size) > w.e.opts.Limits.Read {
			return nil, fmt.Errorf("key %q has entries of more than %d bytes", clip(key), w.e.opts.Limits.Read)
		}
		var err error
		if list, err = appendEntry(list, e); err != nil {
			return nil, err
		}
	}
	return ast.ArrayTerm(list...), nil
}

func appendEntry(list []*ast.Term, e entry) ([]*ast.Term, error) {
	values, err := e.parse()
	if err != nil {
		return nil, err
	}
	ref := refTerm(&e.of.ref)
	values.Foreach(func(v *ast.Term) {
		list = append(list, ast.ObjectTerm(ast.Item(refKeys.ref, ref), ast.Item(refKeys.value, v)))
	})
	return list, nil
}

// pinned says whether an object is held at another version than policies pin.
func pinned(pins map[aggregate.Kind]string, o aggregate.Object) error {
	if len(pins) == 0 {
		return nil
	}
	if pin := pins[o.Ref().Kind]; pin != "" && pin != version(o.APIVersion()) {
		return fmt.Errorf("%s is held at %s, the policy pins %s", o.Ref().Kind, o.APIVersion(), pin)
	}
	return nil
}

// contribute evaluates a view for one object.
func (w *worker) contribute(ctx context.Context, v *view, o aggregate.Object, body []byte) contribution {
	ref := o.Ref()
	fail := func(err error) contribution {
		return contribution{contrib: &contrib{ref: ref, failed: err.Error()}}
	}
	if why := v.score.held(ref.Member); why != "" {
		return contribution{contrib: &contrib{ref: ref, failed: why, held: true}}
	}
	if err := pinned(v.pins, o); err != nil {
		return fail(err)
	}
	items := [][2]*ast.Term{ast.Item(inputKeys.ref, refTerm(&ref))}
	object, err := document.Value(body, v.def.Mask)
	if err != nil {
		return fail(err)
	}
	if object != nil {
		items = append(items, ast.Item(inputKeys.object, ast.NewTerm(object)))
	}
	defer w.meter.hold()()
	w.begin(nil, ref.Member)
	value, _, err := w.run(ctx, v.query, ast.NewTerm(ast.NewObject(items...)))
	w.e.viewEvaluations.Add(1)
	if err == nil && value != nil {
		if _, ok := limits.Size(value, w.e.opts.Limits.Contribution); !ok {
			err = excess(fmt.Sprintf("it contributes more than %d bytes", w.e.opts.Limits.Contribution))
		}
	}
	v.score.count(ref.Member, w.eval.budget.cost(err), &w.e.opts)
	if err != nil {
		c := fail(err)
		c.over = errors.Is(err, errBudget)
		return c
	}
	return contributed(ref, value, w.e.opts.Limits.Contribution)
}

// object decodes what a mask reads of an object.
func (w *worker) object(o aggregate.Object, m *mask.Mask) (*ast.Term, error) {
	if err := w.read(o, m); err != nil {
		return nil, err
	}
	return w.decode(o, m, false)
}

// read takes an object's body, if a mask reads anything of it.
func (w *worker) read(o aggregate.Object, m *mask.Mask) (err error) {
	w.body = w.body[:0]
	if m != nil && !o.IsZero() {
		w.body, err = o.AppendBody(w.body)
	}
	return err
}

// decode decodes what a mask reads of the object whose body was taken. pruned says
// that its twins know the body's parts already.
func (w *worker) decode(o aggregate.Object, m *mask.Mask, pruned bool) (*ast.Term, error) {
	if m == nil || o.IsZero() {
		return nil, nil //nolint:nilnil // A mask that reads nothing has no value.
	}
	if pruned {
		if v, err := document.Value(w.twins.read, m); err == nil {
			return ast.NewTerm(v), nil
		}
	}
	v, err := document.Value(w.body, m)
	if err != nil {
		return nil, err
	}
	return ast.NewTerm(v), nil
}
