// Package subscribed knows which keys verdicts have read of what other processes judge, so that these are asked for, and
// which of them this process has.
//
// A read of data.fleet is in the tables of reads under the hash of its key. A Table knows for each such hash which keys it
// is of: a bucket of a space, or all of it (see pkg/interest). It is told by the tables of reads which hashes come and go, so
// that nothing is asked for which no verdict reads.
//
// What is wanted grows at once, and shrinks when it is counted again: a process that asks for a little more than it reads
// is told a little more, and nothing else.
//
// # Concurrency
//
// A Table belongs to one goroutine. While it does not change, others may call Holds and Knows.
package subscribed
