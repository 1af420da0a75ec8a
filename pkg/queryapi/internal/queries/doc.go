// Package queries answers what is asked about the fleet as a whole: how many
// objects there are (count), what belongs together (related), and which members
// there are (members).
//
// Every answer is of one snapshot, in JSON or as a meta.k8s.io/v1 Table, and
// says in notSynced for which members it is not fresh. An unknown parameter is
// a 400 that names it.
//
// # What a caller may not read
//
// Objects are counted where the caller may list them, the object that related
// starts from is one that he may get, and those that it leads to are ones that
// he may list. What he may not read is left out with all edges to it, and
// nothing is looked for behind it; it reads as if it did not exist. Nor does it
// use up a bound.
//
// # Concurrency
//
// A Server may be used by any number of goroutines. A count that has to look at
// single objects is shared among as many goroutines as there are processors,
// which are gone when it is done.
//
// # Trade-offs
//
// Counts by member, member label, kind and namespace follow the number of
// those. Others walk the index, some 0.2 µs for each object, or, by a field
// that the index does not declare, decode every one. Relations are found by the
// indexes for owners, labels and declared fields where one leads there, else by
// reading the objects of one namespace.
package queries
