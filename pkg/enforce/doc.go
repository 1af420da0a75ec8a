// Package enforce runs the loop between the index and the policies: changes in the fleet
// become verdicts, in order and without gaps, and verdicts become corrections.
//
// A [Loop] reads the index through a cursor, so that changes which arrive while policies
// are evaluated are coalesced into the next batch: on a busy fleet batches grow, and the
// loop does not fall behind. Policies and bindings are replaced between batches. The
// expiry of an exemption is a change of its binding like any other.
//
// A [Corrector] makes corrections of verdicts, as far as the [EnforcementSpec] of a policy
// allows, and gives them to an [Actor].
//
// # Concurrency
//
// Run owns the loop's goroutine and those of the engine, and joins them. State and Stats
// may be called from any goroutine; Configure waits for the loop to pick it up.
//
// # Trade-offs
//
// One goroutine applies changes, many evaluate: the verdicts of a batch are published
// together, so that a State is always of one snapshot.
package enforce
