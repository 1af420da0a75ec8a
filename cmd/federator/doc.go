// Command federator keeps one compact index of the objects of a fleet of
// clusters and answers for it.
//
//	federator serve      follow the members and serve health, metrics and the admin endpoint
//	federator members    print the members and what is known of them
//	federator actions    see what was written to members, take it back, and stop it
//	federator version    print versions
//
// # Concurrency
//
// serve owns four things that run: the HTTP servers, the trainer of the index,
// the manager of the members and the wait for a signal. They start in this
// order and end in the reverse one; run returns when all of them are gone.
//
// # Trade-offs
//
// Members are printed by asking a running server on a loopback address, which
// needs no credentials and gives none away beyond the machine. Without a server,
// --contexts follows the members for as long as the answer takes.
package main
