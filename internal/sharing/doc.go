// Package sharing wires what a process needs that shares a fleet with others: who holds which member (pkg/shards), what
// policies read of the members of others (pkg/exchange), the listener that peers connect to, and what the query API
// must know of them.
package sharing
