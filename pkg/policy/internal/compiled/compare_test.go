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
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/value"
)

// termStore has a term as data, and records what is read.
type termStore struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported

	root  ast.Value
	reads []string
}

func (*termStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return transaction(0), nil
}
func (*termStore) Commit(context.Context, storage.Transaction) error { return nil }
func (*termStore) Abort(context.Context, storage.Transaction)        {}
func (*termStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return nil
}

type transaction uint64

func (t transaction) ID() uint64 { return uint64(t) }

func (s *termStore) Read(_ context.Context, _ storage.Transaction, path storage.Path) (any, error) {
	s.reads = append(s.reads, strings.Join(path, "/"))
	v := s.root
	for _, step := range path {
		key := ast.StringTerm(step)
		switch x := v.(type) {
		case ast.Object:
			v = valueOf(x.Get(key))
		case *ast.Array:
			n, err := strconv.Atoi(step)
			if err != nil || strconv.Itoa(n) != step {
				v = nil
				break
			}
			v = valueOf(x.Get(ast.IntNumberTerm(n)))
		default:
			v = nil
		}
		if v == nil {
			return nil, &storage.Error{Code: storage.NotFoundErr, Message: "not found"}
		}
	}
	return v, nil
}

func valueOf(t *ast.Term) ast.Value {
	if t == nil {
		return nil
	}
	return t.Value
}

// program is a query that is asked of both evaluators.
type program struct {
	question

	text    string // of the query
	program *compiled.Program
	refused *compiled.Unsupported
}

// newProgram compiles a query for both. The error is that of OPA's compiler.
func newProgram(c *ast.Compiler, text string, strict, indexing bool) (*program, error) {
	body, err := ast.ParseBody(text)
	if err != nil {
		return nil, err
	}
	outs := outsOf(body)
	query, err := c.QueryCompiler().Compile(body)
	if err != nil {
		return nil, err
	}
	p := &program{question: question{compiler: c, query: query, outs: outs, strict: strict, indexing: indexing}, text: text}
	p.program, err = compiled.Compile(c, query, outs, compiled.Options{Lenient: !strict})
	if err != nil && !errors.As(err, &p.refused) {
		return nil, fmt.Errorf("not a refusal: %w", err)
	}
	return p, nil
}

// world is what a program is evaluated on.
type world struct{ input, data ast.Value }

var errPanicked = errors.New("topdown panicked")

func (p *program) topdown(ctx context.Context, w world) (a answers) {
	defer func() {
		if r := recover(); r != nil {
			a.err = fmt.Errorf("%w: %v", errPanicked, r)
		}
	}()
	store := &termStore{root: w.data}
	a.err = topdown.NewQuery(p.query).WithCompiler(p.compiler).WithStore(store).WithTransaction(transaction(0)).WithInput(ast.NewTerm(w.input)).
		WithStrictBuiltinErrors(p.strict).WithIndexing(p.indexing).Iter(ctx, func(r topdown.QueryResult) error {
		values := make([]ast.Value, len(p.outs))
		for i, v := range p.outs {
			values[i] = r[v].Value
		}
		a.solutions = append(a.solutions, fmt.Sprint(values))
		return nil
	})
	a.reads = store.reads
	return a
}

func (p *program) compiled(m *compiled.Machine, w world) (a answers) {
	docs := &documents{root: value.Of(nil, w.data)}
	a.err = m.Run(p.program, compiled.Input{Input: value.Of(nil, w.input), Data: docs}, func(outs []value.Value) error {
		values := make([]ast.Value, len(outs))
		for i, v := range outs {
			values[i] = v.AST()
		}
		a.solutions = append(a.solutions, fmt.Sprint(values))
		return nil
	})
	a.reads = docs.reads
	return a
}

// verdict is how the answers of both compare.
type verdict struct {
	outcome outcome
	why     string
	got     answers
	want    answers
}

// ask asks both.
func (p *program) ask(ctx context.Context, m *compiled.Machine, w world) (v verdict) {
	v.want = p.topdown(ctx, w)
	if p.refused != nil {
		v.outcome, v.why = interpreted, p.refused.What
		return v
	}
	v.got = p.compiled(m, w)
	v.outcome, v.why = p.judge(v.got, v.want)
	return v
}

func (p *program) judge(got, want answers) (outcome, string) {
	switch {
	case errors.Is(want.err, errPanicked):
		return limited, ""
	case errors.Is(want.err, limits.ErrLimit) || errors.Is(got.err, limits.ErrLimit):
		if got.err == nil {
			return different, "only topdown exceeds a limit"
		}
		return limited, ""
	case got.err != nil && strings.Contains(got.err.Error(), "panic"):
		return different, got.err.Error()
	case got.err != nil && want.err != nil:
		return bothFail, ""
	case got.err != nil:
		return deferred, got.err.Error()
	case want.err != nil:
		return different, "only topdown fails"
	case !slices.Equal(got.solutions, want.solutions):
		return different, unlikeSolutions(got.solutions, want.solutions)
	case p.indexing:
		return same, ""
	}
	if extra := unlike(documentsOf(got.reads), documentsOf(want.reads)); extra != "" {
		reader, _, _ := strings.Cut(extra, " reads")
		return different, reader + " reads a document"
	}
	return same, ""
}

// documentsOf are the paths that documents can be at. Both look for documents where rules
// are, too, and there are none.
func documentsOf(reads []string) []string {
	return slices.DeleteFunc(slices.Clone(reads), func(path string) bool { return !strings.HasPrefix(path, "doc") })
}

// unlikeSolutions says how solutions differ.
func unlikeSolutions(got, want []string) string {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return "the order of solutions"
	}
	if slices.Equal(slices.Compact(got), slices.Compact(want)) {
		return "how often a solution is there"
	}
	return "solutions"
}
