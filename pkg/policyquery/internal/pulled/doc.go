// Package pulled is what a request reads of members that other processes judge: items that these send ([Writer]), and an
// index of the request that holds them ([Index]), bounded in bytes, which is freed with the request.
//
// The items of a member are one with what is known of it and of its scopes, and then its objects. Who sends them leaves
// out what the caller may not read.
//
// # Concurrency
//
// A Writer and an Index belong to one goroutine; the snapshot of an Index may be read by any number.
package pulled
