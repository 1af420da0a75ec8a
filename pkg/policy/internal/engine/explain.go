package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/instants"
	"federator.dev/federator/pkg/policy/internal/linetrace"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// ErrSubject is a subject that a binding does not evaluate.
var ErrSubject = errors.New("not a subject of the binding")

// Explanation is how a verdict came about.
type Explanation struct {
	Package string          `json:"package"`
	Verdict verdict.Verdict `json:"verdict"` // that of the state
	// Reevaluated is what evaluating again gave, where that differs from the verdict:
	// the budget was exceeded then, or the binding is quarantined.
	Reevaluated *verdict.Verdict `json:"repeated,omitempty"`

	Lines []linetrace.Line `json:"lines"`           // of the policies' files, that were evaluated
	Reads []Read           `json:"reads"`           // in order, each once
	Input json.RawMessage  `json:"input,omitempty"` // what the policy sees of the subject
}

// Read is one document that an evaluation read.
type Read struct {
	Path        string       `json:"path"`
	Found       bool         `json:"found"`
	Times       int          `json:"times"`
	Bytes       int64        `json:"bytes"` // of JSON, for documents of objects and views
	Objects     []ReadObject `json:"objects,omitempty"`
	MoreObjects int          `json:"moreObjects,omitempty"`
	Scopes      []ReadScope  `json:"scopes,omitempty"` // incomplete ones first
	MoreScopes  int          `json:"moreScopes,omitempty"`
}

// ReadObject is an object that a document shows.
type ReadObject struct {
	Ref             aggregate.Ref      `json:"ref"`
	ResourceVersion string             `json:"resourceVersion"` // of the member
	Revision        aggregate.Revision `json:"revision"`        // of its last change
}

// ReadScope is a scope that a document shows objects of, or would.
type ReadScope struct {
	Member string          `json:"member"`
	Kind   aggregate.Kind  `json:"kind"`
	State  aggregate.State `json:"state"`
	Reason string          `json:"reason,omitempty"`
}

// Bounds of what one read lists.
const (
	maxReadObjects = 100
	maxReadScopes  = 200
)

// tracedBudget is how many times as long as others a traced evaluation may take.
const tracedBudget = 20

// Explain evaluates a binding for one subject again, on the state's snapshot and views,
// as of its time, and says what was read and what became of each line. opts.Set is that of the state;
// of other options only Limits count. A subject that the binding does not evaluate is
// ErrSubject, a binding that is not there ErrBinding.
func Explain(ctx context.Context, opts Options, s *state.State, binding string, subject verdict.Subject) (*Explanation, error) {
	e, of, err := engineAt(opts, s, binding, subject)
	if err != nil {
		return nil, err
	}
	held, ok := s.Get(binding, subject)
	if !ok {
		return nil, fmt.Errorf("%w: binding %q does not evaluate %s", ErrSubject, binding, subject)
	}
	e.opts.Limits.Evaluation *= tracedBudget
	b, w := e.bindings[0], e.callerWorker
	w.trace = &trace{engine: e, binding: b}
	w.trace.subject(subject)
	r := w.evaluateOne(ctx, b, taskOf(s, b, subject))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	x := &Explanation{Package: b.pkg.Path(), Verdict: held, Lines: append(w.trace.lines.Lines(), w.trace.expressions...), Reads: w.trace.reads}
	if w.trace.input != nil {
		if x.Input, err = document.JSON(w.trace.input.Value); err != nil {
			return nil, err
		}
	}
	repeated := of.Verdict(s, subject, r.readSet, r.outcome)
	repeated.Revision = held.Revision
	if repeated.State != held.State || repeated.Message != held.Message || !verdict.SameViolations(repeated.Violations, held.Violations) {
		x.Reevaluated = &repeated
	}
	return x, nil
}

// engineAt returns an engine at the snapshot and views of a state, for the version of one of its
// bindings that is in effect for a subject.
func engineAt(opts Options, s *state.State, name string, subject verdict.Subject) (*Engine, *state.Binding, error) {
	of := state.PartsOf(s).Binding(name)
	if of == nil {
		return nil, nil, fmt.Errorf("%w: there is no binding %q", binding.ErrInvalid, name)
	}
	of = of.On(subject)
	alone := of.Binding
	alone.Next = nil
	opts.Bindings = []binding.Binding{alone}
	opts.subscribeAs(s)
	e, err := New(opts)
	if err != nil {
		return nil, nil, err
	}
	if e.bindings[0].pkg != of.Pkg {
		return nil, nil, fmt.Errorf("%w: the set differs from that of the state", binding.ErrInvalid)
	}
	e.fleet, e.gaps = state.PartsOf(s).Fleet, state.PartsOf(s).Gaps
	e.external = state.PartsOf(s).External
	e.clock = instants.Clock{AsOf: s.AsOf.Unix(), Now: state.PartsOf(s).Clock}
	e.passID++
	e.setMemberInputs()
	for _, held := range state.PartsOf(s).Views {
		if v := e.view(held.Pkg.Name, held.Def.Name); v != nil { // indexes of other templates are not there
			v.Adopt(held)
		}
	}
	e.bindings[0].updateMembers(e.fleet)
	return e, of, nil
}

// taskOf returns the task of a binding for a subject.
func taskOf(s *state.State, b *boundBinding, subject verdict.Subject) *task {
	t := &task{subject: subject}
	if b.pkg.Subject == module.ObjectSubject {
		t.object, _ = s.Snapshot.Get(subject.Ref)
	}
	return t
}

// evaluateOne evaluates one subject as a pass does.
func (w *worker) evaluateOne(ctx context.Context, b *boundBinding, t *task) result {
	var object value.Value
	if !t.object.IsZero() {
		var err error
		if object, err = w.decodeObject(t.object, b.mask); err != nil {
			return result{outcome: state.Failed(err.Error()), readSet: w.ownReadSet(t.subject.Ref.Kind)}
		}
	}
	return w.evaluate(ctx, b, t, object)
}

// trace records one evaluation. It belongs to the worker's goroutine.
type trace struct {
	engine  *Engine
	binding *boundBinding
	lines   linetrace.Tracer
	input   *ast.Term
	reads   []Read
	seen    map[aggregate.Ref]bool // objects of the last read

	expressions []linetrace.Line // of CEL, in order
}

// attach makes a query report to the trace.
func (t *trace) attach(q *topdown.Query, input *ast.Term) {
	t.input = input
	q.WithQueryTracer(&t.lines).WithStore(tracedStore{t: t})
}

// tracedStore is an engineStore that records what is read.
type tracedStore struct {
	engineStore

	t *trace
}

// Read implements storage.Store.
func (s tracedStore) Read(ctx context.Context, txn storage.Transaction, path storage.Path) (any, error) {
	ev, ok := txn.(*evaluation)
	if !ok {
		return nil, errNoTransactions
	}
	before := ev.bytesRead
	v, err := s.engineStore.Read(ctx, txn, path)
	s.t.read(path, err == nil, ev.bytesRead-before)
	return v, err
}

func (t *trace) read(path storage.Path, ok bool, bytes int64) {
	if len(path) > 2 && path[0] == module.LookupRoot {
		path = append(storage.Path{"inventory"}, path[2:]...) // as the template has it
	}
	name := path.Ref(ast.DefaultRootDocument).String()
	if i := slices.IndexFunc(t.reads, func(r Read) bool { return r.Path == name }); i >= 0 {
		t.reads[i].Times++
		return
	}
	r := t.begin(name)
	r.Found, r.Bytes = ok, bytes
	if len(path) > 2 && path[0] == "fleet" {
		t.describe(&r, path[1], path[2:])
	}
	t.reads = append(t.reads, r)
}

func (t *trace) begin(path string) Read {
	t.seen = map[aggregate.Ref]bool{}
	return Read{Path: path, Found: true, Times: 1}
}

// subject records what is read of the subject itself.
func (t *trace) subject(s verdict.Subject) {
	switch t.binding.pkg.Subject {
	case module.ObjectSubject:
		r := t.begin("input.object")
		t.ref(&r, s.Ref)
		r.Scopes = append(r.Scopes, t.scope(s.Ref.Kind, s.Ref.Member)) // visible or not
		t.reads = append(t.reads, r)
	case module.ViewSubject:
		r := t.begin("input.entries")
		for e := range t.binding.view.Entries(s.Key) {
			if t.binding.entryCounts(e, t.engine.fleet) {
				r.Bytes += int64(len(e.Values))
				t.ref(&r, e.Object.Ref)
			}
		}
		t.scopes(&r, t.contributingKinds(t.binding.view.Pkg), "")
		t.reads = append(t.reads, r)
	}
}

// describe finds the objects and scopes of a document below data.fleet.
func (t *trace) describe(r *Read, section string, path []string) {
	q := aggregate.Query{}
	var member, name string
	at := func(i int) string {
		if i < len(path) {
			return path[i]
		}
		return ""
	}
	switch section {
	case "views":
		if v := t.engine.view(t.binding.pkg.Reader(at(0)), at(1)); v != nil {
			t.view(r, v, path[2:])
		}
		return
	case "by_name":
		q.Namespace, name, member = at(1), at(2), at(3)
	case "objects":
		member, q.Namespace, name = at(1), at(2), at(3)
	default:
		return
	}
	q.Kind, _ = t.engine.callerWorker.kind(path[0])
	q.Name = name
	if member != "" {
		q.Members = []string{member}
	}
	t.scopes(r, []aggregate.Kind{q.Kind}, member)
	if objects, err := t.engine.fleet.List(q); err == nil {
		for o := range objects {
			if t.binding.visible.Has(o.Member()) {
				t.object(r, o)
			}
		}
	}
}

func (t *trace) view(r *Read, v *view, path []string) {
	t.scopes(r, t.contributingKinds(v.Pkg), "")
	keys := v.Keys()
	if len(path) > 0 {
		keys = slices.Values(path[:1])
	}
	for k := range keys {
		for e := range v.Entries(k) {
			if t.binding.visible.Has(e.Object.Ref.Member) {
				t.ref(r, e.Object.Ref)
			}
		}
	}
}

// contributingKinds are the kinds whose objects contribute to the views of a package.
func (t *trace) contributingKinds(p *module.Package) []aggregate.Kind {
	return slices.Collect(state.KindsOf(p, t.engine.fleet))
}

func (t *trace) ref(r *Read, ref aggregate.Ref) {
	if o, ok := t.engine.fleet.Get(ref); ok {
		t.object(r, o)
	}
}

func (t *trace) object(r *Read, o aggregate.Object) {
	if t.seen[o.Ref()] {
		return
	}
	t.seen[o.Ref()] = true
	if len(r.Objects) == maxReadObjects {
		r.MoreObjects++
		return
	}
	r.Objects = append(r.Objects, ReadObject{Ref: o.Ref(), ResourceVersion: o.ResourceVersion(), Revision: o.Revision()})
}

// scopes adds those of some kinds in one member, or in all that are visible.
func (t *trace) scopes(r *Read, kinds []aggregate.Kind, member string) {
	var complete []ReadScope
	for _, kind := range kinds {
		for m := range t.engine.fleet.Members() {
			if member != "" && m.Name != member || !t.binding.visible.Has(m.Name) {
				continue
			}
			if s := t.scope(kind, m.Name); s.State.Complete() {
				complete = append(complete, s)
			} else {
				r.Scopes = append(r.Scopes, s)
			}
		}
	}
	r.Scopes = append(r.Scopes, complete...)
	if n := len(r.Scopes); n > maxReadScopes {
		r.Scopes, r.MoreScopes = r.Scopes[:maxReadScopes], n-maxReadScopes
	}
}

func (t *trace) scope(kind aggregate.Kind, member string) ReadScope {
	info, _ := t.engine.fleet.Scope(member, kind)
	return ReadScope{Member: member, Kind: kind, State: info.Status.State, Reason: info.Status.Reason}
}
