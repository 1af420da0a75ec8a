// Command federator keeps one compact index of the objects of a fleet of
// clusters and serves it.
//
//	federator serve      sync the members and serve the query API, health, metrics and the admin endpoint
//	federator members    print the members and their state
//	federator actions    list what was written to members, roll it back, and stop all writes
//	federator agent      serve a cluster that federator cannot reach, to it
//	federator version    print versions
//
// # Concurrency
//
// serve owns its components: the HTTP servers, the trainer of the index, the keeper of
// revisions, the manager of the members, the policies and the query API. They start in
// this order and stop in the reverse one; run returns when all of them have ended.
//
// # Trade-offs
//
// The members command reads from a running server on a loopback address, which needs no
// credentials and exposes nothing beyond the machine. Without a server, --contexts
// connects to the members itself for as long as one command takes.
package main
