package compiled_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/value"
)

// question is what both evaluators are asked.
type question struct {
	compiler *ast.Compiler
	query    ast.Body
	outs     []ast.Var
	input    *ast.Term      // nil: none
	data     map[string]any // as JSON decodes it
	strict   bool
	indexing bool
}

// answers are the solutions of a query, each as text, and the paths that were read.
type answers struct {
	solutions []string
	reads     []string
	err       error
}

// recordingStore records what topdown reads.
type recordingStore struct {
	storage.Store

	reads []string
}

func (s *recordingStore) Read(ctx context.Context, txn storage.Transaction, path storage.Path) (any, error) {
	s.reads = append(s.reads, strings.Join(path, "/"))
	return s.Store.Read(ctx, txn, path)
}

// interpret asks topdown.
func (q *question) interpret(ctx context.Context) (a answers) {
	store := &recordingStore{Store: inmem.NewFromObject(q.data)}
	txn := storage.NewTransactionOrDie(ctx, store)
	defer store.Abort(ctx, txn)
	a.err = topdown.NewQuery(q.query).WithCompiler(q.compiler).WithStore(store).WithTransaction(txn).WithInput(q.input).
		WithStrictBuiltinErrors(q.strict).WithIndexing(q.indexing).Iter(ctx, func(r topdown.QueryResult) error {
		values := make([]ast.Value, len(q.outs))
		for i, v := range q.outs {
			values[i] = r[v].Value
		}
		a.solutions = append(a.solutions, fmt.Sprint(values))
		return nil
	})
	a.reads = store.reads
	return a
}

// documents are the data of a program. They record what is read.
type documents struct {
	root  value.Value
	reads []string
}

func (d *documents) Read(path []string) (value.Value, error) {
	d.reads = append(d.reads, strings.Join(path, "/"))
	return d.root.Find(path), nil
}

// run asks the compiled program. refused is why there is none.
func (q *question) run(m *compiled.Machine) (a answers, refused *compiled.Unsupported) {
	p, err := compiled.Compile(q.compiler, q.query, q.outs, compiled.Options{Lenient: !q.strict})
	if err != nil {
		errors.As(err, &refused)
		return a, refused
	}
	in := compiled.Input{}
	if q.input != nil {
		in.Input = value.Of(nil, q.input.Value)
	}
	root, err := ast.InterfaceToValue(q.data)
	if err != nil {
		return answers{err: err}, nil
	}
	docs := &documents{root: value.Of(nil, root)}
	in.Data = docs
	a.err = m.Run(p, in, func(outs []value.Value) error {
		values := make([]ast.Value, len(outs))
		for i, v := range outs {
			values[i] = v.AST()
		}
		a.solutions = append(a.solutions, fmt.Sprint(values))
		return nil
	})
	a.reads = docs.reads
	return a, nil
}

// outcome is how the answers of both compare.
type outcome int

const (
	same      outcome = iota
	different         // an error of the compiled program is never a difference: topdown decides
	deferred          // to topdown, which has no error
	bothFail
	limited // a limit of ours is exceeded
	interpreted
)

// ask asks both.
func (q *question) ask(ctx context.Context, m *compiled.Machine) (o outcome, why string) {
	got, refused := q.run(m)
	if refused != nil {
		return interpreted, refused.What
	}
	want := q.interpret(ctx)
	switch {
	case errors.Is(want.err, limits.ErrLimit) || errors.Is(got.err, limits.ErrLimit):
		return limited, ""
	case got.err != nil && want.err != nil:
		return bothFail, ""
	case got.err != nil:
		return deferred, got.err.Error()
	case want.err != nil:
		return different, fmt.Sprintf("compiled: %v\ntopdown: %v", got.solutions, want.err)
	}
	slices.Sort(got.solutions)
	slices.Sort(want.solutions)
	if !slices.Equal(got.solutions, want.solutions) {
		return different, fmt.Sprintf("compiled: %v\ntopdown:  %v", got.solutions, want.solutions)
	}
	if extra := unlike(q.documents(got.reads), q.documents(want.reads)); extra != "" && !q.indexing {
		return different, extra
	}
	return same, ""
}

// documents are the paths that no rules are below: both look for documents there, to merge
// them, and there are none.
func (q *question) documents(reads []string) []string {
	return slices.DeleteFunc(reads, func(path string) bool {
		ref := ast.Ref{ast.DefaultRootDocument}
		for step := range strings.SplitSeq(path, "/") {
			ref = append(ref, ast.StringTerm(step))
		}
		return q.compiler.RuleTree.Find(ref) != nil
	})
}

// unlike says which paths only one of both has read, but for those below what the other read whole.
func unlike(got, want []string) string {
	covered := func(path string, by []string) bool {
		return slices.ContainsFunc(by, func(p string) bool { return p == path || p == "" || strings.HasPrefix(path, p+"/") })
	}
	for _, p := range got {
		if !covered(p, want) {
			return fmt.Sprintf("only the compiled program reads %s; topdown reads %v", p, want)
		}
	}
	for _, p := range want {
		if !covered(p, got) {
			return fmt.Sprintf("only topdown reads %s; compiled: %v", p, got)
		}
	}
	return ""
}

// outsOf are the variables of a query whose values are its solutions.
func outsOf(query ast.Body) []ast.Var {
	vars := query.Vars(ast.VarVisitorParams{SkipRefHead: true, SkipClosures: true, SkipRefCallHead: true})
	var outs []ast.Var
	for v := range vars {
		if !v.IsGenerated() && !v.IsWildcard() {
			outs = append(outs, v)
		}
	}
	slices.Sort(outs)
	return outs
}
