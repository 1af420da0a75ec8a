package policy

import (
	"context"

	"federator.dev/federator/pkg/policy/internal/adhoc"
)

// Errors of queries that callers branch on.
var (
	// ErrQuery is a query that cannot be evaluated as it is written.
	ErrQuery = adhoc.ErrQuery
	// ErrQueryLimit is a query that exceeds a limit.
	ErrQueryLimit = adhoc.ErrLimit
)

// Ad-hoc queries.
type (
	// QueryOptions are what a query reads and its limits.
	QueryOptions = adhoc.Options
	// Reader says what the caller may read. Its methods are called often, from one
	// goroutine at a time.
	Reader = adhoc.Reader
	// Everything is a Reader of everything.
	Everything = adhoc.Everything
	// Views are the views that a query can read, of one revision: those of a State.
	Views = adhoc.Views
	// Answer is the result of a query.
	Answer = adhoc.Answer
	// QueryReads are what a query may read of members, whatever is in them.
	QueryReads = adhoc.Reads
	// QueryProjector returns what a query reads of objects.
	QueryProjector = adhoc.Projector
	// ReadDocument is an external document that a query has read.
	ReadDocument = adhoc.ReadDocument
	// Row is one solution of the query.
	Row = adhoc.Row
)

// Query evaluates a Rego query over data.fleet of one snapshot, which holds what
// the Reader may read and nothing else: answers, errors and the order of rows are
// those of a fleet without the rest. Wrong queries are ErrQuery, queries that take
// too much ErrQueryLimit; a context that ends is its own error.
func Query(ctx context.Context, opts QueryOptions, query string) (*Answer, error) {
	return adhoc.Query(ctx, opts, query)
}

// ReadsOf returns what a query may read. Its errors are those of Query that follow from the query alone.
func ReadsOf(query string) (*QueryReads, error) { return adhoc.FindReads(query) }
