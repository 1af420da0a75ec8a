// Package intents brings the intents of all processes that share a fleet to the one that writes.
//
// # Who says what
//
// Each process judges some of the members, and its Corrector tells a [Sender] what corrections that requires. The
// process that holds the Lease has a [Receiver], which follows the Senders of all processes, its own too, and
// gives their union to one Dispatcher: limits, waves, windows, halts and plans see the whole fleet.
//
// # What is written
//
// Nothing, unless every process says the same version of a policy, is ready, has been heard of in the last
// [SilentAfter], and judges exactly the members that the map gives it. Otherwise [Receiver.Incomplete] says why: it is asked
// at the gate of each write, so that no batch has to arrive for a write to be held. Meanwhile what was planned stays
// planned: what a lost process has said last is kept. An intent counts if the process that says it judges its
// subject's member, so that a member that moves never has two. Keys of views have an owner that this package does not
// know: while two processes may have one, both say so (see [Sender.Evaluated]).
//
// # Targets of others
//
// An intent whose target another process judges says what is known of it ([remediate.Intent].Basis). The [Receiver] asks those who judge
// such targets, before it tells its Actor and again each second: only what they confirm has the UID and resourceVersion to write with, everything
// else is Unresolved. Intents of several processes for one target are combined from their parts, as one process would, whose subjects their
// processes judge.
//
// # The stream
//
// A reader gets lines of JSON: the state, then changes, each batch ended by a frontier, at least one each second. It
// is one zstd frame with one window, flushed after each batch, where the reader asks for that: 3,000 intents with patches of 1 KB are
// an eighteenth of their bytes, for 3 % more CPU. It is driven by level: a reader that is slow costs the names of what has changed, and gets what is so by then. A
// connection that breaks starts over; intents are few beside the objects that they are about.
//
// # Concurrency
//
// Senders are safe for concurrent use, and what a Corrector calls never waits for a reader. Receiver.Run owns all
// goroutines of a Receiver, and joins them.
package intents
