// Package policy evaluates Rego over a fleet.
//
// Query answers an ad-hoc query over data.fleet of one snapshot, as far as its
// Reader may read: what is outside is not in the documents, so that no answer,
// error, order or bound tells of it. Below it, documents are made straight from
// the index's stored bytes, with only the parts that a query reaches, and
// builtins that could amplify a small query into a large one are limited.
//
// Policies that run all the time — packages with METADATA, bindings, views and
// the incremental engine — are not here yet.
//
// # Concurrency
//
// Any number of queries may run at once; each ends with its context or its time.
// Builtins' guards are installed once, for the whole process: OPA looks its own
// table up before a query's.
//
// # Trade-offs
//
// A query without a bound member or namespace reads whole kinds, and pays for
// each object's decompression and documents; QueryOptions bounds that in bytes.
package policy
