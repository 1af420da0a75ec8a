// Package remediate turns remedies into guarded writes on members, so that policies can
// enforce unattended.
//
// # From an intent to a write
//
// A [Dispatcher] is given all intents of a policy, one [Intent] for each target, and its
// [RolloutSpec]. It decides when they are carried out: not before all verdicts have been
// counted, not over a limit, in waves, in windows, not while all actions are stopped or the
// policy is halted, and only where this process is the leader. Then, for each intent:
//
//  1. The target is read. If it has changed since it was evaluated, the action is
//     Superseded; if it is never written, Protected.
//  2. A server-side dry run. Without a change the action ends as NoOp, with fields of
//     other managers as Contended, with a refusal as Failed. What is tried and not written
//     has one [Action] for all versions of its target.
//  3. The Action is recorded on the hub, with its inverse. Its name is a hash of the
//     correction and the version of the target: recording it twice finds it there.
//  4. Leader, halt, stop and hold are checked once more, and the write is done, with UID
//     and resourceVersion as preconditions and the action's name as an annotation.
//
// A process that ends at any point leaves an Action that its successor can resolve: the
// annotation of the target shows whether it was written.
//
// # Concurrency
//
// The methods of a Dispatcher are safe for concurrent use; Run owns its goroutines and
// joins them. A target is written by one of them at a time.
//
// # Trade-offs
//
// Limits count distinct targets, pending ones included, before anything is written: they
// halt a correction that would have turned out to be a no-op. Counts are kept in memory
// and rebuilt from the recorded Actions by each new leader.
package remediate
