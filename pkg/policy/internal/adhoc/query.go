// Package adhoc answers ad-hoc Rego queries over data.fleet of one snapshot, as far as
// a Reader may read. What the Reader may not read is absent from the documents, so that
// no result, error, order or limit depends on it.
package adhoc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/external"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// Errors of queries that callers branch on.
var (
	// ErrQuery is a query that cannot be evaluated as it is written.
	ErrQuery = errors.New("invalid query")
	// ErrLimit is a query that exceeds a limit.
	ErrLimit = errors.New("query exceeds a limit")
)

// timeoutError is the ErrLimit of a query that takes too long.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("query timed out after %v", e.after) }

func (timeoutError) Unwrap() error { return ErrLimit }

// Options are what a query reads and its limits.
type Options struct {
	Snapshot *aggregate.Snapshot
	// Others has members that other processes judge, with what the query reads of them (see Reads); they are taken
	// from there, also where Snapshot has them. nil: none.
	Others *aggregate.Snapshot
	Views  Views  // nil: none
	Reader Reader // required
	// External are the documents from outside the fleet; nil: none.
	External *external.Documents
	AsOf     time.Time     // what has passed; zero means now
	Timeout  time.Duration // 0 means 5 s
	// MaxRead is how many bytes of JSON may be read. What is held of them, what
	// comprehensions hold and builtins create, and the result take at most twice as
	// many bytes of memory. 0 means 64 MiB.
	MaxRead int64
	MaxRows int // 0 means 10,000
}

// Answer is the result of a query.
type Answer struct {
	Revision aggregate.Revision `json:"revision"`
	AsOf     time.Time          `json:"asOf"` // in whole seconds
	Rows     []Row              `json:"rows"`
	Read     int64              `json:"readBytes"`
	// Absent are members, of those that the caller may read, that no process answers for which shares the fleet: what
	// they have is not known. Query leaves it empty.
	Absent []string `json:"absent,omitempty"`
	// External are the external documents that were read, by source and key.
	External []ReadDocument `json:"external,omitempty"`
}

// ReadDocument is an external document that a query has read.
type ReadDocument struct {
	Source string `json:"source"`
	Key    string `json:"key"`
	// Known is false where the content is not known to be so now: what was read is the last one, if there was any.
	Known   bool   `json:"known"`
	Problem string `json:"problem,omitempty"` // why it is not known
	From    string `json:"from,omitempty"`    // where the content was read, and the version there
	Digest  string `json:"digest,omitempty"`  // of the content
}

// Row is one solution of the query.
type Row struct {
	Values   []any          `json:"values"`             // of the query's expressions
	Bindings map[string]any `json:"bindings,omitempty"` // of its variables
}

// Query evaluates a Rego query over data.fleet of one snapshot, which holds what
// the Reader may read and nothing else: answers, errors and the order of rows are
// those of a fleet without the rest. Wrong queries are ErrQuery, queries that take
// too much ErrLimit; a context that ends is its own error.
func Query(ctx context.Context, opts Options, query string) (*Answer, error) {
	if opts.Snapshot == nil || opts.Reader == nil {
		return nil, errors.New("query: Snapshot and Reader are required")
	}
	if opts.Timeout == 0 {
		opts.Timeout = 5 * time.Second
	}
	if opts.AsOf.IsZero() {
		opts.AsOf = time.Now()
	}
	opts.AsOf = opts.AsOf.Truncate(time.Second).UTC()
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
	store := &store{opts: opts, fleet: fleetview.Join(opts.Snapshot, opts.Others), mask: readMask(body)}
	a, err := newRowReader(store, query)
	if err != nil {
		return nil, err
	}
	options := append(limits.Options(), rego.Store(store), rego.GenerateJSON(a.generate))
	kept := countComprehensions(a.body, indexed, store)
	if kept != nil {
		options = append(options, kept.function())
	}
	if kept != nil || limits.MakesValues(body) {
		store.known = knownValues{}
	}
	rs, err := rego.New(append(options, rego.ParsedQuery(a.body))...).Eval(limits.WithMemoryCounter(limited, store))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case limited.Err() != nil && err != nil:
		return nil, timeoutError{opts.Timeout}
	case kept.err() != nil:
		return nil, kept.err()
	case err != nil:
		return nil, queryError(err)
	case len(rs) > opts.MaxRows:
		return nil, a.tooMany()
	}
	answer := &Answer{Revision: opts.Snapshot.Revision(), AsOf: opts.AsOf, Rows: make([]Row, 0, len(rs)), Read: store.bytesRead, External: store.readDocuments()}
	for _, r := range rs {
		answer.Rows = append(answer.Rows, a.row(r))
	}
	return answer, nil
}

// queryError classifies the error of an evaluation.
func queryError(err error) error {
	switch {
	case errors.Is(err, ErrLimit):
		return err
	case errors.Is(err, limits.ErrLimit):
		return fmt.Errorf("%w: %w", ErrLimit, err)
	case topdown.IsCancel(err):
		return fmt.Errorf("%w: it was cancelled", ErrLimit)
	}
	return fmt.Errorf("%w: %w", ErrQuery, err)
}
