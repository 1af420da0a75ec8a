package policy

import (
	"context"

	"federator.dev/federator/pkg/policy/internal/adhoc"
)

// Errors of queries that callers branch on.
var (
	// ErrQuery is a query that cannot be evaluated as it is written.
	ErrQuery = adhoc.ErrQuery
	// ErrQueryLimit is a query that takes more than it may.
	ErrQueryLimit = adhoc.ErrLimit
)

// Ad-hoc queries.
type (
	// QueryOptions say what a query is asked of and what it may take.
	QueryOptions = adhoc.Options
	// Reader says what somebody may read. Its methods are called often, from one
	// goroutine at a time.
	Reader = adhoc.Reader
	// Everything is a Reader of everything.
	Everything = adhoc.Everything
	// Views are the views that a query can read, of one revision: those of a State.
	Views = adhoc.Views
	// Answer is what a query gave.
	Answer = adhoc.Answer
	// Row is one way in which the query holds.
	Row = adhoc.Row
)

// Query evaluates a Rego query over data.fleet of one snapshot, which holds what
// the Reader may read and nothing else: answers, errors and the order of rows are
// those of a fleet without the rest. Wrong queries are ErrQuery, queries that take
// too much ErrQueryLimit; a context that ends is its own error.
func Query(ctx context.Context, opts QueryOptions, query string) (*Answer, error) {
	return adhoc.Query(ctx, opts, query)
}
