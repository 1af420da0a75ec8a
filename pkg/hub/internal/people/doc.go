// Package people asks the hub about people: whether it proves who they are, by [Proofs], and
// whether they may approve or roll back, by [Reviews].
//
// # Concurrency
//
// Both ask in the background, on goroutines that their Run joins, and answer from what they
// know: nobody waits for the hub. They tell their owner when an answer has changed.
//
// # Trade-offs
//
// What is not known, or was known too long ago, is answered as not known: nothing may rest on
// it. So a hub that is away withdraws approval after at most 30 seconds, and gives it back.
package people
