// Package value holds the values that compiled policies calculate with: what ast.Value
// is to topdown, without an allocation for each.
//
// # Why not ast.Value
//
// An ast.Value is built term by term, each behind an interface and hashed for the
// collection that holds it. A Value is three words: scalars are held in it, strings
// alias the bytes that they were read from, and collections are runs of Values in an
// [Arena], in the order of [ast.Compare]. [Decode] makes one from a stored body in a
// tenth of the time.
//
// # Lifetime
//
// A Value lives as long as the bytes that it was decoded from, and until the Arena that
// it was built in is reset. [Value.Term] copies: what it returns lives on.
//
// # Concurrency
//
// A Value is immutable, and may be read by any number of goroutines. An Arena belongs to
// one goroutine.
//
// # Trade-offs
//
// Collections are sorted when they are built and searched by key afterwards: there is no
// hash table, so that finding a key of n costs log n comparisons. Numbers that are
// integers of 64 bits are calculated with directly; all others are kept as they are
// written and compared as OPA compares them.
package value
