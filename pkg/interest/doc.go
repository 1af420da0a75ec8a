// Package interest says which keys a process reads of what others hold.
//
// A policy reads what other processes judge by key: an object by its namespace and name, a view by the key of its entries. Keys
// of one kind or one view are a [Space]. A [Set] has keys by bucket of their hash, so that its size is bounded whatever the keys
// are, and a key that happens to share a bucket costs what is told of it, and nothing else. Who iterates reads the whole of a space.
//
// A Set is immutable and may be used by any goroutine; a [Builder] collects one and may be too.
package interest
