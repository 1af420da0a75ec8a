// Package export writes rows of objects to files that other programs read: Parquet and NDJSON.
//
// A Source gives the rows of a kind; all that it gives are of one revision. Write writes those of one kind to a
// stream. WriteDirectory writes a file for each of several kinds, under temporary names until all of them are
// whole, and then a manifest.
//
// # Files
//
// Columns are those of the rows. A quantity is two of them, the text and, with _number after its name, the number. What is
// null is absent; where values may be redacted, a column named redacted lists the names of the columns whose values are. What
// is not of its column's type is null, too, and counted in the Summary.
//
// A Parquet file has the Summary in its footer, as JSON at the key federator. Of NDJSON only the manifest has it.
//
// # Concurrency
//
// Nothing starts goroutines.
//
// # Trade-offs
//
// A file appears when it is whole, and so never without a footer; what a killed process leaves has a name that begins with
// a dot and ends with .partial. Row groups of Parquet have 100,000 rows or 128 MiB: fewer than readers prefer where rows are narrow,
// so that memory does not grow with the fleet.
package export
