// Package notices says what the hub's objects show that others are to be told of: the Source
// of package notify.
//
// # Facts
//
// A halt began, and ended: the history of a PolicyState, which federator writes and which
// outlives processes, and the halts that there are. A Plan waits, or was approved: its status.
// An Approval was given: once federator has said whether it counts, or has not for a while. A
// stop began: its ConfigMap exists; it has ended when the ConfigMap is gone. An Action was
// rolled back: its phase.
//
// What began and ended more than a week ago is not listed, so that what a Notifier remembers
// stays bounded.
//
// # Concurrency
//
// Run owns the informers and joins them. Facts is safe for concurrent use and does not block.
//
// # Trade-offs
//
// The informers keep what facts need and no more: of an Action neither patch nor inverse, and
// of all Actions, of which there may be 100,000s, those alone that were rolled back. A stop
// that begins and ends while no process leads is not told: it leaves nothing on the hub.
package notices
