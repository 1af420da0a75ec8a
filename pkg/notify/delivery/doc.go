// Package delivery sends the transitions that a Notification selects, from the history of this process to one sink: each
// at least once, in the order of each object, and with an ID by which a receiver knows what it has seen.
//
// # Positions
//
// A [Delivery] reads the history from a position that outlasts the process, in a file beside it. Without [Grouping]
// each transition is a message, whose ID is the key of the transition. With it, a collection begins at the first transition
// that is selected, and ends after a while at a position that is written down before anything of it is sent: a process
// that is killed leaves the collection to the next, which makes the same messages of it, with the same IDs. Within a collection a
// transition of an object is in no earlier message than those of the same object before it.
//
// What the history has lost is sent as well, as a gap: a receiver knows that it does not know.
//
// # Other processes
//
// A process that takes over from another has a history of its own, with other positions. It begins a minute before the
// time until which the other has reported, so that nothing is left out where clocks differ: what is sent twice has the same key. Where its
// history begins later, what is between is a gap. What is recorded later of earlier times, as after the loss of a disk, is not sent, if it
// says by a clock of the hub of when it is.
//
// # Bounds
//
// No more is held than a few messages or, of a collection, its groups, with a bounded text of objects: examples beyond it are without.
//
// # Concurrency
//
// Run is one goroutine. Status may be called from any.
//
// # Trade-offs
//
// A sink that takes nothing holds back what comes later, until the history expires: order is kept rather than throughput. A
// message that is refused as malformed for an hour is given up, and another that says so takes its place. A collection is of all that the
// Notification selects: the first transition of one policy may wait for the interval after the messages of another.
package delivery
