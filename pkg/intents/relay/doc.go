// Package relay passes corrections of members to the processes that judge them: these have a connection to the member,
// and its writes' credentials.
//
// # What passes
//
// A [Server] executes requests for one object of one kind: get, create, patch and delete, with dry runs, field managers,
// and one impersonated user, as remediate.Client sends them. It takes them apart and makes each again from what it has
// found, so that nothing else passes. Preconditions are part of the request, and are the member's API server's to check.
//
// # Who may
//
// A peer, that holds the Lease as far as the relay knows, for members that the relay judges. Held members, and targets
// that are protected, are not written for anybody. The request ends when the leader's lease does.
//
// # What is known of a write
//
// A relay that has sent nothing says so, and the [Client] returns an error of dialling, as for a server that nobody
// reaches; it is remediate.ErrNotNow where another process is to be asked. Any other failure means that the member may have
// executed the request. Then the target shows it, as after any lost answer: by its annotation federator.dev/action.
//
// # Concurrency
//
// Both are safe for concurrent use, and start no goroutines.
package relay
