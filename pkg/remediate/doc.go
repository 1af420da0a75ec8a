// Package remediate turns remedies into guarded writes on members, so that people can
// sleep while policies enforce.
//
// # From an intent to a write
//
// A [Dispatcher] is told all that a binding wants corrected, as one [Intent] for each
// target, and the [Contract] that holds. It decides when: not before all verdicts have
// been counted, not over a limit, in waves, in windows, not while anything is stopped
// or halted, and only where this process leads. Then, for each intent:
//
//  1. The target is read. One that has moved since it was judged is Superseded, one
//     that is never written is Protected.
//  2. A server-side dry run. Nothing to change ends as NoOp, fields of others as
//     Contended, what is refused as Failed. What is tried and never written has one
//     Action for all versions of its target.
//  3. The [Action] is recorded in the [Journal], with its inverse. Its name is a
//     function of the correction and of the version of the target: whoever records
//     it twice finds it there.
//  4. The gate is asked once more, and the write is done, with UID and
//     resourceVersion as preconditions and the action's name as an annotation.
//
// A process that ends at any point leaves an Action that its successor can settle: the
// target shows by its annotation whether it was written.
//
// # Concurrency
//
// The methods of a Dispatcher are safe for concurrent use; Run owns its goroutines and
// joins them. A target is written by one of them at a time.
//
// # Trade-offs
//
// Limits count distinct targets, pending ones included, before anything is written:
// they halt a correction that would have turned out to be a no-op. What counts is kept
// in memory and rebuilt from the journal at the start.
package remediate
