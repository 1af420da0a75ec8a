package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// oracle evaluates a snapshot by plain OPA: JSON documents in OPA's own store, all
// subjects evaluated, nothing kept. It shares no code with the engine; what a
// package says of itself it takes from the package's METADATA.
type oracle struct {
	compiler *ast.Compiler
	set      *policy.Set // for METADATA only
	texts    map[string]string
	mu       sync.Mutex
	queries  map[string]ast.Body
	beside   *besideOracle // of a set with candidates, which is evaluated by others
}

// oracleLimits are so that some views of a history come to hold more than they may.
var oracleLimits = policy.Limits{Evaluation: time.Hour, View: 4500}

// What counts of a view beside its texts, in bytes.
const (
	oneEntry       = 130
	oneContributor = 140
)

func newOracle(s policySet) (*oracle, error) {
	compiler, err := ast.CompileModulesWithOpt(s.texts, ast.CompileOpts{ParserOptions: ast.ParserOptions{RegoVersion: ast.RegoV1}})
	if err != nil {
		return nil, err
	}
	return &oracle{compiler: compiler, set: s.set, texts: s.texts, queries: map[string]ast.Body{}}, nil
}

func (o *oracle) query(rule string) (ast.Body, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q, ok := o.queries[rule]; ok {
		return q, nil
	}
	body, err := ast.ParseBody("x = data." + rule)
	if err != nil {
		return nil, err
	}
	if body, err = o.compiler.QueryCompiler().Compile(body); err != nil {
		return nil, err
	}
	o.queries[rule] = body
	return body, nil
}

// recorder is OPA's store; it remembers what was read of it.
type recorder struct {
	storage.Store
	asOf  int64 // what has passed
	paths []storage.Path
	bad   func(storage.Path) error
}

func (r *recorder) Read(ctx context.Context, txn storage.Transaction, p storage.Path) (any, error) {
	r.paths = append(r.paths, slices.Clone(p))
	if err := r.bad(p); err != nil {
		return nil, err
	}
	if at, is, err := instantIn(p); is && (err != nil || at <= r.asOf) {
		return true, err
	}
	return r.Store.Read(ctx, txn, p)
}

// eval evaluates a rule with OPA's rule index, and without it: the index gives the
// same answer but reads more, so that reads are those of the evaluation without. One
// difference is OPA's own: a rule that the index rules out by a later expression, such
// as one of an input that is not there, never comes to an earlier one that fails. Rules
// that ask what has passed are evaluated without: the index would list all instants. So are those that read documents from
// outside, of which it would read more.
func (o *oracle) eval(ctx context.Context, rule string, input ast.Value, store *recorder) (ast.Value, error) {
	if pkg := o.set.Package(strings.TrimSuffix(rule, ".violation")); pkg != nil && (pkg.Reads.Time || pkg.Reads.External != nil) {
		return o.evalOnce(ctx, rule, input, store, false)
	}
	indexed, failed := o.evalOnce(ctx, rule, input, store, true)
	store.paths = nil
	out, err := o.evalOnce(ctx, rule, input, store, false)
	switch {
	case err == nil && failed != nil:
		return nil, fmt.Errorf("%w: evaluation fails with the rule index only: %w", errOracle, failed)
	case err == nil && (out == nil) != (indexed == nil), err == nil && out != nil && ast.Compare(out, indexed) != 0:
		return nil, fmt.Errorf("%w: the rule index makes a difference: %v and %v", errOracle, out, indexed)
	}
	return out, err
}

var errOracle = errors.New("oracle")

func (o *oracle) evalOnce(ctx context.Context, rule string, input ast.Value, store *recorder, indexing bool) (ast.Value, error) {
	body, err := o.query(rule)
	if err != nil {
		return nil, err
	}
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	var out ast.Value
	err = topdown.NewQuery(body).WithIndexing(indexing).WithCompiler(o.compiler).WithStore(store).WithTransaction(txn).
		WithInput(ast.NewTerm(input)).WithStrictBuiltinErrors(true).
		Iter(ctx, func(r topdown.QueryResult) error {
			out = r["x"].Value
			return nil
		})
	return out, err
}

// textVerdict is one verdict, as text.
type textVerdict struct {
	state      policy.VerdictState
	violations string
}

// oracleEntry is one value that an object contributes to a key of a view.
type oracleEntry struct {
	ref   aggregate.Ref
	key   string
	value ast.Value
}

type oracleView struct {
	pkg     *policy.Package
	entries []oracleEntry   // sorted
	failed  []aggregate.Ref // objects whose contribution is an error
	size    int64           // as Limits.View counts it
}

// full is one full evaluation of a snapshot.
type full struct {
	*oracle

	ctx      context.Context // It is one call.
	now      moment
	s        *aggregate.Snapshot
	objects  []aggregate.Object
	bodies   map[aggregate.Ref]any
	views    map[string]*oracleView // by package and name
	verdicts map[string]textVerdict // by binding and subject
	broken   error                  // the oracle's own
}

func (o *oracle) evaluateOne(ctx context.Context, s *aggregate.Snapshot, bindings []policy.Binding, now moment) (map[string]textVerdict, error) {
	f := &full{oracle: o, ctx: ctx, now: now, s: s, bodies: map[aggregate.Ref]any{}, views: map[string]*oracleView{}, verdicts: map[string]textVerdict{}}
	for kind := range s.Kinds() {
		list, err := s.List(aggregate.Query{Kind: kind})
		if err != nil {
			return nil, err
		}
		for x := range list {
			text, err := x.AppendBody(nil)
			if err != nil {
				return nil, err
			}
			var body any
			if err := json.Unmarshal(text, &body); err != nil {
				return nil, err
			}
			f.objects = append(f.objects, x)
			f.bodies[x.Ref()] = body
		}
	}
	for _, pkg := range o.set.Packages {
		if !o.mentioned(pkg, bindings) {
			continue
		}
		for _, v := range pkg.Views {
			if err := f.view(pkg, v.Name); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range bindings {
		if err := f.binding(b); err != nil {
			return nil, err
		}
	}
	return f.verdicts, f.broken
}

// mentioned reports whether a package is bound, or named in the text of one that is:
// views of others are read by nobody.
func (o *oracle) mentioned(pkg *policy.Package, bindings []policy.Binding) bool {
	return slices.ContainsFunc(bindings, func(b policy.Binding) bool {
		if b.Package == pkg.Name {
			return true
		}
		for name, text := range o.texts {
			if strings.Contains(o.set.Package(b.Package).File, name) && strings.Contains(text, pkg.Name) {
				return true
			}
		}
		return false
	})
}

func ofKind(pkg *policy.Package, kind aggregate.Kind) (pin string, ok bool) {
	for _, k := range pkg.Kinds {
		if k.Kind == kind {
			return k.Version, true
		}
	}
	_, group := kind.Split()
	return "", pkg.AnyKind || group != "" && slices.Contains(pkg.Groups, group)
}

func refJSON(r aggregate.Ref) map[string]any {
	return map[string]any{"member": r.Member, "kind": string(r.Kind), "namespace": r.Namespace, "name": r.Name}
}

func astOf(v any) ast.Value {
	x, err := ast.InterfaceToValue(v)
	if err != nil {
		panic(err)
	}
	return x
}

func jsonOf(v ast.Value) any {
	x, err := ast.JSONWithOpt(v, ast.JSONOpt{SortSets: true})
	if err != nil {
		panic(err)
	}
	return x
}

func emptyStore() *recorder {
	return &recorder{Store: inmem.New(), bad: func(storage.Path) error { return nil }}
}

func at(apiVersion, pin string) bool { return pin == "" || path.Base(apiVersion) == pin }

func (f *full) view(pkg *policy.Package, name string) error {
	v := &oracleView{pkg: pkg}
	f.views[pkg.Name+"."+name] = v
	for _, x := range f.objects {
		pin, ok := ofKind(pkg, x.Ref().Kind)
		if !ok {
			continue
		}
		found, err := f.contribution(pkg.Name+".view."+name, x, pin)
		if err != nil {
			v.failed = append(v.failed, x.Ref())
			continue
		}
		v.entries = append(v.entries, found...)
	}
	slices.SortFunc(v.entries, func(a, b oracleEntry) int {
		if n := ast.Compare(astOf(refJSON(a.ref)), astOf(refJSON(b.ref))); n != 0 {
			return n
		}
		return ast.Compare(a.value, b.value)
	})
	v.entries = slices.CompactFunc(v.entries, func(a, b oracleEntry) bool {
		return a.ref == b.ref && a.key == b.key && ast.Compare(a.value, b.value) == 0
	})
	type place struct {
		ref aggregate.Ref
		key string
	}
	values := map[place][]any{}
	for _, e := range v.entries {
		values[place{e.ref, e.key}] = append(values[place{e.ref, e.key}], jsonOf(e.value))
	}
	objects := map[aggregate.Ref]bool{}
	for _, ref := range v.failed {
		objects[ref] = true
	}
	for at, list := range values {
		text, err := canonical(list)
		if err != nil {
			return err
		}
		v.size += int64(len(at.key)+len(text)) + oneEntry
		objects[at.ref] = true
	}
	v.size += int64(len(objects)) * oneContributor
	return nil
}

func (f *full) contribution(rule string, x aggregate.Object, pin string) ([]oracleEntry, error) {
	if !at(x.APIVersion(), pin) {
		return nil, errors.New("another version")
	}
	input := astOf(map[string]any{"ref": refJSON(x.Ref()), "object": f.bodies[x.Ref()]})
	out, err := f.eval(f.ctx, rule, input, emptyStore())
	if errors.Is(err, errOracle) {
		f.broken = err
	}
	if err != nil || out == nil {
		return nil, err
	}
	var entries []oracleEntry
	err = out.(ast.Object).Iter(func(k, values *ast.Term) error { // A panic is a failure.
		key, ok := k.Value.(ast.String)
		if !ok {
			return errors.New("no string")
		}
		for _, value := range values.Value.(ast.Set).Slice() { // As above.
			entries = append(entries, oracleEntry{x.Ref(), string(key), astOf(jsonOf(value.Value))})
		}
		return nil
	})
	slices.SortFunc(entries, func(a, b oracleEntry) int {
		if n := strings.Compare(a.key, b.key); n != 0 {
			return n
		}
		return ast.Compare(a.value, b.value)
	})
	return entries, err
}

func put(tree map[string]any, v any, at ...string) {
	for _, p := range at[:len(at)-1] {
		next, ok := tree[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[p] = next
		}
		tree = next
	}
	tree[at[len(at)-1]] = v
}

// reads says what the completeness of what was read makes of a verdict.
func (f *full) reads(x *oracleBinding, subject policy.Subject, o aggregate.Object, paths []storage.Path) policy.VerdictState {
	state := policy.Known
	scope := func(member string, kind aggregate.Kind) {
		if info, _ := f.s.Scope(member, kind); !info.Status.State.Complete() && !x.tolerated[member] {
			state = max(state, policy.Unknown)
		}
	}
	all := func(kind aggregate.Kind) {
		for m := range x.visible {
			if x.visible[m] {
				scope(m, kind)
			}
		}
	}
	view := func(v *oracleView) {
		if slices.ContainsFunc(v.failed, func(ref aggregate.Ref) bool { return x.visible[ref.Member] && !x.tolerated[ref.Member] }) {
			state = max(state, policy.Unknown)
		}
		if v.size > oracleLimits.View {
			state = policy.Error
		}
		for _, k := range v.pkg.Kinds {
			all(k.Kind)
		}
		for kind := range f.s.Kinds() {
			if _, ok := ofKind(v.pkg, kind); ok {
				all(kind)
			}
		}
	}
	if !o.IsZero() {
		scope(o.Member(), o.Ref().Kind)
	}
	if x.subjectView != nil {
		view(x.subjectView)
	}
	for _, p := range paths {
		if at, is, _ := instantIn(p); is && f.now.clock < at && at <= f.now.asOf {
			state = max(state, policy.Unknown) // by no member's gap
		}
		if len(p) >= 3 && p[0] == "fleet" && p[1] == "external" && f.now.documents.doubts(p[2:]) {
			state = max(state, policy.Unknown) // by no member's gap
		}
		if len(p) < 3 || p[0] != "fleet" {
			continue
		}
		kind := aggregate.Kind(strings.Replace(p[2], ".v1", "", 1))
		member := ""
		switch p[1] {
		case "views":
			view(f.views[p[2]+"."+p[3]])
			continue
		case "by_name":
			if len(p) > 5 {
				member = p[5]
			}
		case "objects":
			if len(p) > 3 {
				member = p[3]
			}
		default:
			continue
		}
		switch {
		case member == "":
			all(kind)
		case x.visible[member]:
			scope(member, kind)
		}
	}
	return state
}

// violations writes what the rules gave, and refuses what is no violation.
func (f *full) violations(x *oracleBinding, subject policy.Subject, o aggregate.Object, out ast.Value) (string, error) {
	if out == nil {
		return "", nil
	}
	var texts []string
	for _, t := range out.(ast.Set).Slice() { // A panic is a failure.
		v, ok := jsonOf(t.Value).(map[string]any)
		if !ok {
			return "", errors.New("no object")
		}
		if msg, ok := v["msg"].(string); !ok || msg == "" {
			return "", errors.New("no msg")
		}
		if remedy, ok := v["remedy"]; ok {
			r, err := f.remedy(x, subject, remedy)
			if err != nil {
				return "", err
			}
			v["remedy"] = r
		}
		if reason := f.exempt(x, subject, o); reason != "" {
			v["exempt"] = reason
		}
		text, err := canonical(v)
		if err != nil {
			return "", err
		}
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n"), nil
}

func (f *full) remedy(x *oracleBinding, subject policy.Subject, remedy any) (any, error) {
	r, ok := remedy.(map[string]any)
	if !ok {
		return nil, errors.New("no object")
	}
	if r["target"] == nil {
		if subject.Ref.Kind == "" {
			return nil, errors.New("no target")
		}
		r["target"] = refJSON(subject.Ref)
	}
	for _, declared := range x.pkg.Remedies {
		if declared.Action == r["action"] && string(declared.Kind) == r["target"].(map[string]any)["kind"] { // As above.
			return r, nil
		}
	}
	return nil, errors.New("not declared")
}

func (f *full) exempt(x *oracleBinding, subject policy.Subject, o aggregate.Object) string {
	for _, e := range x.Exemptions {
		name := subject.Ref.Name
		switch {
		case subject.Key != "":
			name = subject.Key
		case o.IsZero():
			name = subject.Ref.Member
		}
		member, there := f.s.Member(subject.Ref.Member)
		everyone := len(e.Members.Names) == 0 && (e.Members.Labels == nil || len(e.Members.Labels.MatchLabels)+len(e.Members.Labels.MatchExpressions) == 0)
		switch {
		case !everyone && !(there && selects(e.Members, member)):
		case len(e.Namespaces) > 0 && (o.IsZero() || !named(e.Namespaces, o.Namespace())):
		case e.Labels != nil && (o.IsZero() || !labelled(e.Labels, o.Labels())):
		case !named(e.Names, name):
		default:
			return e.Reason
		}
	}
	return ""
}
