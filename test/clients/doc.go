// Package clients shows what clients of Kubernetes get from the query API, beside what
// a real API server answers them: one table ([rows]) of what a client does, at a real
// API server, at /fleet, at /flat and at /members, with what is expected at each.
//
// Three members hold objects of the same names, so that clients which key by namespace
// and name show what they lose at /fleet and that they lose nothing at /flat. Clients
// are the real ones: kubectl and Helm as commands, client-go and controller-runtime,
// and, for those that are not Go modules to be run here, their requests as they send them.
//
// docs/clients.md is the table in Markdown. TestClients fails when it differs from what
// the clients got:
//
//	make clients                 # prints the table
//	make clients CLIENTS=write   # writes docs/clients.md again
package clients
