// Package columns makes rows of objects: it chooses the columns of a kind, and encodes what an object has for
// each as package rows wants it.
//
// The columns are rows.Fixed, then those of the kind's Table, then chosen ones. A Table is for people: where its column is the
// name, an age or another time relative to now, the row has the time itself, or leaves out what a fixed column says.
//
// # Concurrency
//
// A Set is immutable. An Encoder belongs to one goroutine.
//
// # Trade-offs
//
// Cells of a Table cost some ten times what those of paths do: an object is decoded for its printer, which is Kubernetes'
// own. Paths are read in one pass over the bytes that the index holds, and nothing is decoded.
package columns
