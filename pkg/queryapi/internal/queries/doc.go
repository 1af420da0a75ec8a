// Package queries serves queries over the whole fleet: how many objects there are (count),
// which objects are related (related), and which members there are (members).
//
// Every result is of one snapshot, in JSON or as a meta.k8s.io/v1 Table, and lists in
// notSynced the members that are not fresh. An unknown parameter is a 400 that names it.
//
// # What a caller may not read
//
// Objects are counted where the caller may list them; the caller must be allowed to get
// the object that related starts from, and to list those that it leads to. Other objects
// are left out with all edges to them, and not traversed, as if they did not exist. They
// do not count towards limits either.
//
// # Concurrency
//
// A Handler may be used by any number of goroutines. A count that has to read single
// objects uses as many goroutines as there are processors, which end with it.
//
// # Trade-offs
//
// Counts by member, member label, kind and namespace cost as much as there are of those.
// Others iterate over the index, some 0.2 µs per object, or, for a field that the index
// does not declare, decode every object. Relations are found by the indexes of owners,
// labels and declared fields where possible, else by reading the objects of one namespace.
package queries
