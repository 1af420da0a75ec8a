// Package document converts stored bodies to what OPA evaluates: straight from
// canonical JSON bytes (aggregate.Record.Body) to ast values, only the parts that
// a mask reads, with no map in between.
//
// # What is kept
//
// The pruned value of a body under a mask has the keys and elements whose own
// mask is not nil. A scalar is kept whole wherever the mask is not nil; an object
// or array under an empty mask is kept empty. Policies that read no more than
// their mask says cannot distinguish the pruned value from the complete one.
//
// # Digests
//
// A [Fan] digests what each of several masks reads of a body, in one walk: for what is
// equal to the policies of a mask no value is made at all.
//
// # Concurrency
//
// All functions are safe for concurrent use. Values share terms with each other
// and must not be changed.
//
// # Trade-offs
//
// What the mask does not read is skipped, not checked: a body that is malformed
// there has a value nevertheless. Bodies come from the index, which wrote them.
// Short strings are looked up in a small cache, which costs a hash and saves three
// allocations for the names that Kubernetes objects repeat; it pins at most 4096
// terms in each processor's decoder.
package document
