package compiled_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/value"
)

// evaluation is one run of a query, by topdown or compiled.
type evaluation struct {
	compiler *ast.Compiler
	query    ast.Body
	outs     []ast.Var
	input    *ast.Term // nil: there is none
	data     ast.Value
	strict   bool
	indexing bool
}

// outcome is what came of an evaluation: its solutions, each as text, or an error.
type outcome struct {
	solutions []string
	err       error
	reads     [][]string
}

func (o outcome) String() string {
	if o.err != nil {
		return fmt.Sprintf("error: %v", o.err)
	}
	return fmt.Sprintf("%d solutions:\n\t%s", len(o.solutions), strings.Join(o.solutions, "\n\t"))
}

// sameOutcome reports whether two outcomes agree: in the order of the solutions, too.
func sameOutcome(a, b outcome) bool {
	return (a.err != nil) == (b.err != nil) && slices.Equal(a.solutions, b.solutions)
}

// sameButForOrder reports whether two outcomes have the same solutions.
func sameButForOrder(a, b outcome) bool {
	a.solutions, b.solutions = slices.Sorted(slices.Values(a.solutions)), slices.Sorted(slices.Values(b.solutions))
	return sameOutcome(a, b)
}

// errPanic is the error of topdown where it panics.
var errPanic = errors.New("topdown panics")

// ofTopdown evaluates with topdown.
func (e *evaluation) ofTopdown() (o outcome) {
	store := &readStore{root: e.data}
	defer func() {
		if r := recover(); r != nil {
			o = outcome{err: fmt.Errorf("%w: %v", errPanic, r)}
		}
	}()
	err := topdown.NewQuery(e.query).WithCompiler(e.compiler).WithInput(e.input).WithStore(store).
		WithStrictBuiltinErrors(e.strict).WithIndexing(e.indexing).
		Iter(context.Background(), func(r topdown.QueryResult) error {
			values := make([]ast.Value, len(e.outs))
			for i, v := range e.outs {
				if t := r[v]; t != nil {
					values[i] = t.Value
				}
			}
			o.solutions = append(o.solutions, solution(e.outs, values))
			return nil
		})
	if err != nil {
		return outcome{err: err}
	}
	o.reads = store.reads
	return o
}

func solution(outs []ast.Var, values []ast.Value) string {
	var b strings.Builder
	for i, v := range outs {
		text := "undefined"
		if values[i] != nil {
			text = values[i].String()
		}
		fmt.Fprintf(&b, "%s = %s; ", v, text)
	}
	return b.String()
}

// compile compiles the query of e.
func (e *evaluation) compile() (*compiled.Program, error) {
	p, err := compiled.Compile(e.compiler, e.query, e.outs, compiled.Options{Lenient: !e.strict})
	if err == nil && p.Misindexed() {
		e.indexing = false // as the engine has it
	}
	return p, err
}

// ofProgram evaluates a compiled program.
func (e *evaluation) ofProgram(m *compiled.Machine, p *compiled.Program) outcome {
	documents := &documents{root: value.Of(nil, e.data)}
	in := compiled.Input{Data: documents}
	if e.input != nil {
		in.Input = value.Of(nil, e.input.Value)
	}
	var o outcome
	err := m.Run(p, in, func(outs []value.Value) error {
		values := make([]ast.Value, len(outs))
		for i, v := range outs {
			values[i] = v.AST()
		}
		o.solutions = append(o.solutions, solution(e.outs, values))
		return nil
	})
	if err != nil {
		return outcome{err: err}
	}
	o.reads = documents.reads
	return o
}

// documents are the Data of an evaluation.
type documents struct {
	root  value.Value
	reads [][]string
}

// Read implements compiled.Data.
func (d *documents) Read(path []string) (value.Value, error) {
	d.reads = append(d.reads, slices.Clone(path))
	return d.root.Find(path), nil
}

// readStore is the store of an evaluation with topdown.
type readStore struct {
	storage.Store
	root  ast.Value
	reads [][]string
}

// Read implements storage.Store.
func (s *readStore) Read(_ context.Context, _ storage.Transaction, path storage.Path) (any, error) {
	s.reads = append(s.reads, slices.Clone(path))
	v := s.root
	for _, step := range path {
		var t *ast.Term
		switch x := v.(type) {
		case ast.Object:
			t = x.Get(ast.StringTerm(step))
		case *ast.Array:
			if i, err := strconv.Atoi(step); err == nil && strconv.Itoa(i) == step {
				t = x.Get(ast.InternedTerm(i))
			}
		}
		if t == nil {
			return nil, &storage.Error{Code: storage.NotFoundErr, Message: strings.Join(path, "/")}
		}
		v = t.Value
	}
	return v, nil
}

// variables are those of a query that its solutions are told apart by.
func variables(query ast.Body) []ast.Var {
	visitor := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{
		SkipRefCallHead: true, SkipClosures: true, SkipObjectKeys: false,
	})
	for _, e := range query {
		if !e.Negated {
			visitor.Walk(e)
		}
	}
	vars := visitor.Vars().Diff(ast.ReservedVars)
	var list []ast.Var
	for v := range vars {
		if !v.IsWildcard() {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return list
}

// reason is why a program was not compiled, without names and places.
func reason(err error) string {
	if u, ok := errors.AsType[*compiled.Unsupported](err); ok {
		return u.What
	}
	return err.Error()
}
