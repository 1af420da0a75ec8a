package versus

import (
	"context"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/policies"
)

// shipped loads the shipped policies.
func shipped(tb testing.TB) *module.Set {
	tb.Helper()
	var src module.Source
	err := fs.WalkDir(policies.FS, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".rego") || strings.HasSuffix(p, "_test.rego") {
			return err
		}
		data, err := fs.ReadFile(policies.FS, p)
		src.Files = append(src.Files, module.File{Path: p, Data: data})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	set, err := module.Load([]module.Source{src}, module.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

const answer = ast.Var("answer")

// policy is a rule in Rego: compiled, and as topdown evaluates it.
type policy struct {
	pkg      *module.Package
	compiler *ast.Compiler
	body     ast.Body
	program  *compiled.Program
	machine  compiled.Machine
	found    value.Value
	keep     func(outs []value.Value) error
	arena    value.Arena // of inputs that are decoded
}

func newPolicy(tb testing.TB, set *module.Set, name string) *policy {
	tb.Helper()
	p := &policy{pkg: set.Package("federator." + name), compiler: set.Compiler}
	if p.pkg == nil {
		tb.Fatalf("no package %s", name)
	}
	body, err := set.Compiler.QueryCompiler().Compile(ast.MustParseBody(string(answer) + " = data." + p.pkg.Path() + ".violation"))
	if err != nil {
		tb.Fatal(err)
	}
	p.body = body
	if p.program, err = compiled.Compile(set.Compiler, body, []ast.Var{answer}, compiled.Options{}); err != nil {
		tb.Fatal(err)
	}
	p.keep = func(outs []value.Value) error {
		p.found = outs[0]
		return nil
	}
	return p
}

// run evaluates the compiled rule.
func (p *policy) run(input value.Value, data *fleet, out *findings) error {
	p.found = value.Value{}
	if err := p.machine.Run(p.program, compiled.Input{Input: input, Data: data}, p.keep); err != nil {
		return err
	}
	return keepAll(p.found, out)
}

// keepAll keeps violations as the engine does.
func keepAll(set value.Value, out *findings) error {
	for _, v := range set.Elems() {
		kept := violation{msg: strings.Clone(v.Field("msg").Str())}
		if d := v.Field("details"); d.Defined() {
			var err error
			if kept.details, err = d.JSON(); err != nil {
				return err
			}
		}
		out.list = append(out.list, kept)
	}
	return nil
}

// runBytes decodes what the rule reads of a body and evaluates the compiled rule.
func (p *policy) runBytes(c *testCase, out *findings) error {
	p.arena.Reset()
	object, err := value.Decode(&p.arena, c.body, p.pkg.Reads.Object)
	if err != nil {
		return err
	}
	return p.run(inputOf(&p.arena, c, object), c.fleet, out)
}

// inputOf is the input of an object, as the engine builds it.
func inputOf(a *value.Arena, c *testCase, object value.Value) value.Value {
	pairs := a.Alloc(8)[:0]
	pairs = append(pairs, value.Text("member"), c.memberInput)
	if object.Defined() {
		pairs = append(pairs, value.Text("object"), object)
	}
	return value.ObjectOf(append(pairs, value.Text("parameters"), c.params, value.Text("ref"), fleetdoc.Ref(a, &c.ref)))
}

// interpret evaluates the rule by topdown.
func (p *policy) interpret(input *ast.Term, data *fleet, out *findings) error {
	q := topdown.NewQuery(p.body).WithIndexing(!p.pkg.Reads.OfFleet() && !p.pkg.Reads.Time && p.pkg.Reads.External == nil).WithCompiler(p.compiler).WithStore(store{data: data}).
		WithTransaction(transaction{}).WithInput(input).WithStrictBuiltinErrors(true).WithMetrics(metrics.NoOp()).WithTime(time.Unix(0, 1))
	return q.Iter(context.Background(), func(r topdown.QueryResult) error {
		return keepAll(value.Of(nil, r[answer].Value), out)
	})
}

// fleet is data.fleet.
type fleet struct {
	tree value.Value // but for what has passed
	now  int64
	asts map[string]ast.Value // what topdown has read, by its path
}

// view returns a view of a package.
func (f *fleet) view(pkg, name string) value.Value {
	return f.tree.Field("views").Field(pkg).Field(name)
}

// Read implements compiled.Data.
func (f *fleet) Read(path []string) (value.Value, error) {
	if len(path) == 0 || path[0] != "fleet" {
		return value.Value{}, nil
	}
	if len(path) == 3 && path[1] == "passed" {
		at, err := fleetdoc.Instant(path[2])
		if err != nil {
			return value.Value{}, err
		}
		return fleetdoc.Passed(at, f.now), nil
	}
	return f.tree.Find(path[1:]), nil
}

type transaction struct{}

func (transaction) ID() uint64 { return 1 }

// store is data for topdown.
type store struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported
	data *fleet
}

func (store) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return transaction{}, nil
}

func (store) Commit(context.Context, storage.Transaction) error { return nil }

func (store) Abort(context.Context, storage.Transaction) {}

func (store) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return nil
}

// Read implements storage.Store.
func (s store) Read(_ context.Context, _ storage.Transaction, path storage.Path) (any, error) {
	key := strings.Join(path, "\x00")
	if known := s.data.asts[key]; known != nil {
		return known, nil
	}
	v, err := s.data.Read(path)
	if err != nil {
		return nil, err
	}
	if !v.Defined() {
		return nil, fleetdoc.ErrNotFound
	}
	s.data.asts[key] = v.AST()
	return s.data.asts[key], nil
}

// testCase is an object that a rule is evaluated of, in all forms.
type testCase struct {
	subject
	ref         aggregate.Ref
	body        []byte
	memberInput value.Value
	params      value.Value
	input       value.Value
	term        *ast.Term
}

// newCase decodes an object.
func newCase(tb testing.TB, p *policy, o *object, params value.Value, data *fleet) *testCase {
	tb.Helper()
	v, err := value.Decode(nil, o.body, p.pkg.Reads.Object)
	if err != nil {
		tb.Fatal(err)
	}
	c := &testCase{ref: o.ref, body: o.body, params: params}
	labels := data.tree.Field("members").Field(o.ref.Member).Field("labels")
	c.subject = subject{string(o.ref.Kind), o.ref.Member, o.ref.Namespace, o.ref.Name, v, labels, data}
	c.memberInput = value.ObjectOf([]value.Value{value.Text("labels"), labels, value.Text("name"), value.Text(o.ref.Member)})
	c.input = inputOf(nil, c, v)
	c.term = c.input.Term()
	return c
}

// decoded returns the Value of anything that has a form in JSON.
func decoded(tb testing.TB, v any) value.Value {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	term, err := ast.ValueFromReader(strings.NewReader(string(text)))
	if err != nil {
		tb.Fatal(err)
	}
	return value.Of(nil, term)
}

// inOrder is a copy of violations in an order of their texts.
func inOrder(list []violation) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.msg+" "+string(v.details))
	}
	slices.Sort(out)
	return out
}
