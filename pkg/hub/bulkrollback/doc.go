// Package bulkrollback carries out the Rollbacks on the hub: requests of people to roll back
// what a policy has written in a time span, or with a commit.
//
// Each Rollback has one Plan, which is frozen once the user may roll back, this is proven, and
// the policy does not write the same again. Where the policy requires approval, the Plan waits
// for it. Then each target is rolled back by the Dispatcher, with all that guards a single
// rollback, as Actions of their own.
//
// # Concurrency
//
// A Controller works while its process leads, with a goroutine for each Rollback and a bounded
// number of writes; Run joins them. What was done is read from the Actions: whenever a process
// ends, its successor does what is left, and nothing twice.
//
// # Trade-offs
//
// Rollbacks of one policy are not ordered: where two have the same Action, one of them finds it
// rolled back. What could not be written is tried again for a day, which is more than most
// outages last, and after that never: a request must not wait for months for a stop to end.
package bulkrollback
