// Package transitions records in the history what becomes of federator's objects on the hub: phases of Actions, Plans, Approvals, halts,
// stops, suspensions, and commits of PolicySources.
//
// # What is recorded
//
// A [Recorder] follows the objects, and takes every event of their watches: none is coalesced. An object also says what has happened to it
// before: that it was created, who has approved it, which halts have ended. So each event, and each list, gives records of all that
// the object says, and those are left out that are recorded already. Their keys are made of the UID and of what
// happened, with the object's own time where that can happen again: they are equal in all processes.
//
// Once a process leads it lists the objects, and records what its log does not have, so that a disk that is lost takes nothing with it which the hub
// still says. What is older than a log that has begun to lose its beginning is not recorded again.
//
// # Who records
//
// What concerns the hub is recorded by the process that leads, as Options.Leads says. Of those that share a fleet each records
// the Actions in the members that it holds, because who may read their targets is known there. All processes follow the objects, and remember what
// they do not record for a few minutes: the one that takes over records that, too, though the objects may say something else by then.
//
// # Concurrency
//
// Run owns the goroutines that follow the hub and joins them; all that is recorded is recorded on Run's own.
//
// # Trade-offs
//
// What comes and goes while no process follows is recorded as far as the objects tell: a retried Action does not tell of its first failure, nor
// the hub of a stop that is gone again. A suspension is a field of a spec, which does not tell since when: its key has the generation at which it was
// seen. The hub does not say who ends a stop.
package transitions
