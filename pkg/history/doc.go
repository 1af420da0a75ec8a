// Package history is what happened in a fleet: each transition of the objects that are chosen, of scopes and members,
// of verdicts, and of what is done about them.
//
// # What is taken
//
// A policy engine that coalesces is right about what is, and forgets what was. Transitions are therefore taken at the commit,
// from the change log of the index (aggregate.Pending), which has the immutable entries before and after each change. They are decoded
// and compared by field on the History's own goroutine: a commit never waits for it. Of a process that holds its commits back until they
// are on disk, what is kept of the index waits for its history ([History.Wait]): what a killed process had not recorded, the next
// one takes again from the member's watch. Then it has the same Key, and is recorded once as far as the last minutes are
// remembered.
//
// What nobody saw is said: a list that found changes, a change log that was too short, objects that were dropped for want of room or lost with
// what is kept of the index, a disk that was full, and what the log of segments has lost are records of type [Gap], with the span of time that
// they are about. A gap begins with the last that was seen, never later. Since when nothing can be written is in a file of which the block on disk is
// there beforehand, so that the next process knows.
//
// Verdicts are taken from the points of the policies' loop ([History.FollowVerdicts]): violations that open, change
// and close. Which of them were open when a process ended follows from the log: after a restart only what differs is recorded. That a verdict
// turns Unknown follows from the scopes, and is not recorded for each.
//
// Actions, plans, halts, approvals, stops and commits are told by who follows the hub ([History.Tell]), package
// hub/transitions.
//
// # What is recorded of objects
//
// Of kinds that are chosen, by default workloads and what they run on, and those that policies read, some fields: see
// [DefaultFields]. Creations and deletions have all of them. Values of Secrets and ConfigMaps are never among them.
//
// # Concurrency
//
// Begin is called once, before Run; everything else from any goroutine. What Begin and Run use belongs to
// Run's goroutine.
//
// # Trade-offs
//
// A transition costs two decompressions and a walk over both bodies, also where nothing changed that is recorded. Where the clock is set back by less than
// an hour times stand still. A process records what it holds, so that where several
// share a fleet a member that moves has its past in both of their logs.
package history
