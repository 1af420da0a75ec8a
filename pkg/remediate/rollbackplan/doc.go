// Package rollbackplan decides what a Rollback rolls back, and freezes it as a Plan.
//
// A [Gatherer] takes the Actions of a policy and selects: of each target the newest first, as
// far back as the Rollback goes. An Action is left out, with the reason, if it is rolled back
// already, if what it wrote was written again by one that stays, if somebody else has reverted
// it, or if it cannot be rolled back. A [Store] records what was selected on the hub, where a
// Rollback has one Plan at most, whichever process began it.
//
// # Concurrency
//
// A Gatherer is for one goroutine. A Store may be used concurrently.
//
// # Trade-offs
//
// All Actions of the policy are read, in full: what of a target was written last does not show
// in those of the span alone, and what cannot be restored only in their inverses. Other policies'
// Actions are not: whether these have changed the same fields shows when the target is read.
package rollbackplan
