// Package enforce is the one loop between the index and the policies: what changes
// in the fleet becomes verdicts, in order and without gaps.
//
// A [Loop] follows the index with a cursor, so that changes which arrive while
// policies are evaluated coalesce into the next batch: a busy fleet makes batches
// larger, not the loop later. Policies and bindings are exchanged between batches.
// An exemption that expires is a change of its binding like any other.
//
// # Concurrency
//
// Run owns the loop's goroutine and those of the engine, and joins them. State and
// Stats may be called from any goroutine; Configure waits for its turn in the loop.
//
// # Trade-offs
//
// One goroutine takes changes in, many evaluate: a verdict of a batch shows when
// all of the batch are there, so that a State is always of one snapshot.
package enforce
