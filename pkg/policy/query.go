package policy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// Errors of queries that callers branch on.
var (
	// ErrQuery is a query that cannot be evaluated as it is written.
	ErrQuery = errors.New("invalid query")
	// ErrQueryLimit is a query that takes more than it may.
	ErrQueryLimit = errors.New("query exceeds a limit")
)

// Reader says what somebody may read. Its methods are called often, from one
// goroutine at a time.
type Reader interface {
	// Objects reports whether the objects of a kind in one namespace of a member
	// may be listed; namespace is "" for objects that have none.
	Objects(member string, kind aggregate.Kind, namespace string) bool
	// Scope reports whether it may be known that a member has the kind.
	Scope(member string, kind aggregate.Kind) bool
	// Member reports whether the member, its labels, version and APIs may be known.
	Member(member string) bool
}

// Everything is a Reader of everything.
type Everything struct{}

// Objects returns true.
func (Everything) Objects(string, aggregate.Kind, string) bool { return true }

// Scope returns true.
func (Everything) Scope(string, aggregate.Kind) bool { return true }

// Member returns true.
func (Everything) Member(string) bool { return true }

// Views are the views that a query can read, of one revision.
type Views interface {
	// Names yields packages and the names of their views.
	Names() iter.Seq2[string, string]
	// Keys yields the keys of a view, in order.
	Keys(pkg, view string) iter.Seq[string]
	// Entries yields the entries of a key, by ref, then value.
	Entries(pkg, view, key string) iter.Seq2[aggregate.Ref, ast.Value]
}

// QueryOptions say what a query is asked of and what it may take.
type QueryOptions struct {
	Snapshot *aggregate.Snapshot
	Views    Views         // nil: none
	Reader   Reader        // required
	Timeout  time.Duration // 0 means 5 s
	// MaxRead is how many bytes of JSON may be read; what of them is kept, what
	// comprehensions keep and builtins have made, and the answer take at most twice as
	// many bytes of memory. 0 means 64 MiB.
	MaxRead int64
	MaxRows int // 0 means 10,000
}

// Answer is what a query gave.
type Answer struct {
	Revision aggregate.Revision `json:"revision"`
	Rows     []Row              `json:"rows"`
	Read     int64              `json:"readBytes"`
}

// Row is one way in which the query holds.
type Row struct {
	Values   []any          `json:"values"`             // of the query's expressions
	Bindings map[string]any `json:"bindings,omitempty"` // of its variables
}

// Query evaluates a Rego query over data.fleet of one snapshot, which holds what
// the Reader may read and nothing else: answers, errors and the order of rows are
// those of a fleet without the rest. Wrong queries are ErrQuery, queries that take
// too much ErrQueryLimit; a context that ends is its own error.
func Query(ctx context.Context, opts QueryOptions, query string) (*Answer, error) {
	if opts.Snapshot == nil || opts.Reader == nil {
		return nil, errors.New("query: Snapshot and Reader are required")
	}
	if opts.Timeout == 0 {
		opts.Timeout = 5 * time.Second
	}
	if opts.MaxRead == 0 {
		opts.MaxRead = 64 << 20
	}
	if opts.MaxRows == 0 {
		opts.MaxRows = 10_000
	}
	body, indexed, err := compileQuery(query)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	store := &queryStore{opts: opts, mask: queryMask(body)}
	a, err := newAnswering(store, query)
	if err != nil {
		return nil, err
	}
	options := append(limits.Options(), rego.Store(store), rego.GenerateJSON(a.generate))
	kept := keepOf(a.body, indexed, store)
	if kept != nil {
		options = append(options, kept.function())
	}
	if kept != nil || limits.Makes(body) {
		store.known = known{}
	}
	rs, err := rego.New(append(options, rego.ParsedQuery(a.body))...).Eval(limits.WithHolder(limited, store))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil && err != nil:
		return nil, fmt.Errorf("%w: it takes longer than %v", ErrQueryLimit, opts.Timeout)
	case kept.err() != nil:
		return nil, kept.err()
	case err != nil:
		return nil, queryError(err)
	case len(rs) > opts.MaxRows:
		return nil, a.tooMany()
	}
	answer := &Answer{Revision: opts.Snapshot.Revision(), Rows: make([]Row, 0, len(rs)), Read: store.read}
	for _, r := range rs {
		answer.Rows = append(answer.Rows, a.row(r))
	}
	return answer, nil
}

// compileQuery checks what rego would not. It returns also where there are comprehensions
// that are evaluated for all values of what is outside of them at once.
func compileQuery(query string) (ast.Body, map[spot]bool, error) {
	if len(query) > 64<<10 {
		return nil, nil, fmt.Errorf("%w: it is longer than 64 KiB", ErrQuery)
	}
	body, err := ast.ParseBody(query)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	c := ast.NewCompiler().WithCapabilities(limits.Capabilities())
	c.Compile(nil)
	qc := c.QueryCompiler()
	compiled, err := qc.Compile(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	if err := limits.CheckBody(compiled); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQueryLimit, err)
	}
	var wide error
	ast.WalkRefs(compiled, func(r ast.Ref) bool {
		if r[0].Equal(ast.DefaultRootDocument) && !queryable(r) && wide == nil {
			wide = fmt.Errorf("%w: %s: only data.fleet.%s can be read", ErrQuery, r, "{objects, by_name, members, names, scopes, views}")
		}
		return false
	})
	indexed := map[spot]bool{}
	ast.WalkTerms(compiled, func(t *ast.Term) bool {
		if qc.ComprehensionIndex(t) != nil {
			indexed[spotOf(t)] = true
		}
		return false
	})
	return compiled, indexed, wide
}

// sections are the documents of data.fleet.
var sections = []string{"objects", "by_name", "members", "names", "scopes", "views"}

func queryable(r ast.Ref) bool {
	if len(r) < 3 || !r[1].Equal(ast.InternedTerm("fleet")) {
		return false
	}
	s, ok := r[2].Value.(ast.String)
	return ok && slices.Contains(sections, string(s))
}

// queryError says which error an evaluation's is.
func queryError(err error) error {
	switch {
	case errors.Is(err, ErrQueryLimit):
		return err
	case errors.Is(err, limits.ErrLimit):
		return fmt.Errorf("%w: %w", ErrQueryLimit, err)
	case topdown.IsCancel(err):
		return fmt.Errorf("%w: it was cancelled", ErrQueryLimit)
	}
	return fmt.Errorf("%w: %w", ErrQuery, err)
}
