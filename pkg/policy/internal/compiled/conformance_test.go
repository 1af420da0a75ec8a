package compiled_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/util"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/value"
)

// minConformance is the share of OPA's own cases of accepted constructs that must run compiled.
const minConformance = 0.95

// TestConformance_OPAsOwnCases runs the cases that OPA tests topdown with.
func TestConformance_OPAsOwnCases(t *testing.T) {
	root := filepath.Join(opaDir(t), "v1", "test", "cases", "testdata")
	var all conformance
	for version, of := range map[string]ast.RegoVersion{"v0": ast.RegoV0, "v1": ast.RegoV1} {
		set, err := cases.Load(filepath.Join(root, version))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range set.Sorted().Cases {
			all.run(t, version+"/"+c.Note, c, of)
		}
	}
	share := float64(all.compiled) / float64(max(1, all.accepted))
	t.Logf("%d cases, %d with accepted constructs, %d of these compiled: %.2f %%; %d compiled of the others",
		all.cases, all.accepted, all.compiled, 100*share, all.others)
	t.Logf("accepted constructs that topdown evaluates:\n%s", all.reasons)
	t.Logf("other constructs that topdown evaluates:\n%s", all.otherReasons)
	if share < minConformance {
		t.Errorf("%.2f %% of the cases with accepted constructs run compiled, less than %.0f %%", 100*share, 100*minConformance)
	}
}

// opaDir is where the module of OPA is.
func opaDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/open-policy-agent/opa").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// frequency counts by text.
type frequency map[string]int

func (f frequency) String() string {
	var lines []string
	for text, n := range f {
		lines = append(lines, fmt.Sprintf("%8d %s", n, text))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

func (f *frequency) add(text string) {
	if *f == nil {
		*f = frequency{}
	}
	(*f)[text]++
}

// conformance counts cases.
type conformance struct {
	cases, accepted, compiled, others int
	reasons, otherReasons             frequency
}

// run runs one case.
func (all *conformance) run(t *testing.T, name string, c cases.TestCase, version ast.RegoVersion) {
	t.Helper()
	if strings.Contains(strings.Join(c.Modules, ""), "test.sleep(") { // a builtin of OPA's tests alone
		return
	}
	for k, v := range c.Env {
		t.Setenv(k, v)
	}
	e, err := evaluationOf(c, version)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	want, rs := conformanceTopdown(t, e, c)
	if errors.Is(want.err, limits.ErrLimit) {
		return
	}
	checkWanted(t, name, c, rs, want.err)
	all.cases++
	got, why := conformanceCompiled(e)
	if why == "" && want.err == nil && got.err != nil {
		why = "run-time: " + got.err.Error()
	}
	if got.err == nil && why == "" && !sameOutcome(got, want) && !nondeterministic(c) {
		if sameButForOrder(got, want) {
			t.Logf("%s: another order", name)
		} else {
			t.Errorf("%s: compiled %v\ntopdown %v\n%s\n%s", name, got, want, c.Query, strings.Join(c.Modules, "\n"))
		}
	}
	all.count(name, e, why)
}

func (all *conformance) count(name string, e *evaluation, why string) {
	refused := refusedConstruct(e)
	switch {
	case refused == "" && why == "":
		all.accepted++
		all.compiled++
	case refused == "":
		all.accepted++
		all.reasons.add(why + " [" + name + "]")
	case why == "":
		all.others++
	default:
		all.otherReasons.add(refused)
	}
}

func evaluationOf(c cases.TestCase, version ast.RegoVersion) (*evaluation, error) {
	options := ast.ParserOptions{RegoVersion: version}
	if c.ExperimentalKeywords {
		options.Capabilities = ast.CapabilitiesForThisVersion(ast.CapabilitiesExperimentalKeywords(true))
	}
	modules := map[string]string{}
	for i, m := range c.Modules {
		modules[fmt.Sprintf("test-%d.rego", i)] = m
	}
	compiler, err := ast.CompileModulesWithOpt(modules, ast.CompileOpts{ParserOptions: options})
	if err != nil {
		return nil, err
	}
	body, err := ast.ParseBody(c.Query)
	if err != nil {
		return nil, err
	}
	query, err := compiler.QueryCompiler().Compile(body)
	if err != nil {
		return nil, err
	}
	e := &evaluation{compiler: compiler, query: query, data: ast.NewObject(), strict: c.StrictError, indexing: true}
	if c.Data != nil {
		if e.data, err = ast.InterfaceToValue(*c.Data); err != nil {
			return nil, err
		}
	}
	switch {
	case c.InputTerm != nil:
		e.input, err = ast.ParseTerm(*c.InputTerm)
	case c.Input != nil:
		var v ast.Value
		v, err = ast.InterfaceToValue(*c.Input)
		e.input = ast.NewTerm(v)
	}
	return e, err
}

// conformanceTopdown evaluates with OPA's store, and says which variables have values.
func conformanceTopdown(t *testing.T, e *evaluation, c cases.TestCase) (outcome, topdown.QueryResultSet) {
	t.Helper()
	object := map[string]any{}
	if c.Data != nil {
		object = *c.Data
	}
	store := inmem.NewFromObject(object)
	txn := storage.NewTransactionOrDie(t.Context(), store)
	defer store.Abort(t.Context(), txn)
	rs, err := topdown.NewQuery(e.query).WithCompiler(e.compiler).WithStore(store).WithTransaction(txn).
		WithInput(e.input).WithStrictBuiltinErrors(e.strict).Run(context.Background())
	if err != nil {
		return outcome{err: err}, rs
	}
	seen := map[ast.Var]bool{}
	for _, r := range rs {
		for v := range r {
			if !v.IsWildcard() && !seen[v] {
				seen[v] = true
				e.outs = append(e.outs, v)
			}
		}
	}
	slices.Sort(e.outs)
	var o outcome
	for _, r := range rs {
		values := make([]ast.Value, len(e.outs))
		for i, v := range e.outs {
			if t := r[v]; t != nil {
				values[i] = t.Value
			}
		}
		o.solutions = append(o.solutions, solution(e.outs, values))
	}
	return o, rs
}

// conformanceCompiled evaluates a compiled program: why is why there is none.
func conformanceCompiled(e *evaluation) (got outcome, why string) {
	p, err := e.compile()
	if err != nil {
		return outcome{}, reason(err)
	}
	var m compiled.Machine
	return e.ofProgram(&m, p), ""
}

// nondeterministic reports whether two evaluations may differ.
func nondeterministic(c cases.TestCase) bool {
	text := c.Query + strings.Join(c.Modules, "\n")
	for _, name := range []string{"time.now_ns", "rand.intn", "uuid.rfc4122", "io.jwt.encode_sign", "opa.runtime", "net.lookup_ip_addr"} {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// checkWanted checks that topdown itself does what the case wants.
func checkWanted(t *testing.T, name string, c cases.TestCase, rs topdown.QueryResultSet, err error) {
	t.Helper()
	if c.WantError != nil && (err == nil || !strings.Contains(err.Error(), *c.WantError)) {
		t.Errorf("%s: error %v, want %s", name, err, *c.WantError)
	}
	if c.WantErrorCode != nil {
		if e, ok := errors.AsType[*topdown.Error](err); !ok || e.Code != *c.WantErrorCode {
			t.Errorf("%s: error %v, want code %s", name, err, *c.WantErrorCode)
		}
	}
	if err != nil && c.WantError == nil && c.WantErrorCode == nil {
		t.Errorf("%s: %v", name, err)
	}
	if c.WantResult == nil || err != nil {
		return
	}
	want := ast.NewSet()
	for _, bindings := range *c.WantResult {
		want.Add(ast.NewTerm(ast.MustInterfaceToValue(bindings)))
	}
	got := ast.NewSet()
	for _, r := range rs {
		got.Add(ast.NewTerm(jsonOf(t, c, r)))
	}
	if want.Compare(got) != 0 {
		t.Errorf("%s: topdown's result %v, want %v", name, got, want)
	}
}

func jsonOf(t *testing.T, c cases.TestCase, r topdown.QueryResult) ast.Value {
	t.Helper()
	fields := map[string]any{}
	for v, term := range r {
		if c.IgnoreGeneratedVars && strings.HasPrefix(string(v), "__localq") {
			continue
		}
		x, err := ast.JSON(term.Value)
		if err != nil {
			t.Fatal(err)
		}
		if c.SortBindings {
			slices.SortFunc(x.([]any), util.Compare)
		}
		fields[string(v)] = x
	}
	return ast.MustInterfaceToValue(fields)
}

// refusedConstruct names a construct of a case that need not be compiled, "" for none.
func refusedConstruct(e *evaluation) string {
	r := &refusal{rules: e.compiler.RuleTree, data: value.Of(nil, e.data), allowed: map[string]bool{}}
	for _, b := range limits.Capabilities().Builtins {
		r.allowed[b.Name] = true
	}
	r.look(e.query)
	for _, m := range e.compiler.Modules {
		r.look(m)
	}
	return r.what
}

type refusal struct {
	rules   *ast.TreeNode
	data    value.Value
	allowed map[string]bool
	what    string
}

func (r *refusal) look(x any) {
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			if len(x.With) > 0 {
				r.what = "with"
			}
			if terms, ok := x.Terms.([]*ast.Term); ok {
				name := terms[0].Value.String()
				if _, builtin := ast.BuiltinMap[name]; builtin && !r.allowed[name] {
					r.what = "builtin " + name
				}
			}
		case *ast.Rule:
			ast.NewGenericVisitor(func(y any) bool { return r.visitRef(y) }).Walk(x.Body)
			r.look(x.Body)
			if x.Else != nil {
				r.look(x.Else)
			}
			if x.Head.Value != nil {
				r.look(x.Head.Value)
			}
			if x.Head.Key != nil {
				r.look(x.Head.Key)
			}
			return true // its name is no reference
		case ast.Ref:
			r.visitRef(x)
		case *ast.Package, *ast.Import:
			return true
		}
		return false
	}).Walk(x)
}

// visitRef looks whether a reference is to a package, or to rules beside documents.
func (r *refusal) visitRef(x any) bool {
	ref, ok := x.(ast.Ref)
	if !ok || !ref[0].Equal(ast.DefaultRootDocument) {
		return false
	}
	node := r.rules.Child(ref[0].Value)
	path := []string{}
	for _, t := range ref[1:] {
		if node == nil {
			return false
		}
		if len(node.Values) > 0 {
			if r.data.Find(path).Defined() {
				r.what = "rules beside documents"
			}
			return false
		}
		name, ok := t.Value.(ast.String)
		if !ok {
			break
		}
		path = append(path, string(name))
		node = node.Child(t.Value)
	}
	if node != nil && (len(node.Values) == 0 || len(node.Children) > 0) {
		r.what = "a package as a value"
	}
	return false
}
