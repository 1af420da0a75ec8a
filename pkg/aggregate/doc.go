// Package aggregate is the one index of all objects of a fleet: each held once,
// compactly, and read through immutable snapshots.
//
// # Reading
//
// [Index.Snapshot] is one atomic load. A [Snapshot] never changes and agrees with itself
// across all members, kinds and secondary indexes (labels, declared fields, owner UIDs,
// namespace and name across members); it keeps its content alive. A [Cursor] returns what
// changed between two snapshots, coalesced per object; [Index.Changes] replays every single
// change after a revision.
//
// # Writing
//
// Each scope, one kind in one member, has one writer: a [Scope]. [Scope.Item]
// encodes an object, Upsert and Delete change the writer's private trees, and
// Commit publishes them:
//
//  1. The private trees are copied, which costs nothing: they are persistent
//     B-trees that share all nodes until one of them writes.
//  2. Under the index's lock the entries get their revisions, the scope's new
//     root takes its place, and a record goes into the change log.
//  3. One atomic store publishes snapshot and log together; then waiters are notified.
//
// A relist ([Scope.Replace]), a join and a leave are one commit and one record each, however
// many objects they touch: the record keeps the scope's roots before and after, and the
// difference is computed on demand.
//
// # Bodies
//
// An object's body is compressed JSON. [Index.Train], called periodically, builds a
// dictionary for a kind from the objects of the fleet and re-encodes the kind's bodies. It
// is not a commit: content, revisions and snapshots stay, and a body carries the dictionary
// that decodes it.
//
// Objects that are known to change ([Record.Update]) are first encoded fast, in another
// format with the same dictionary: one and a half times as large, at a fifth of the cost,
// and a quarter to decode. [Index.Recompress], called once a minute, encodes small what has
// not changed since: an object that changes all the time never costs the small encoding.
//
// # Concurrency
//
// Readers take no lock and never wait for writers, nor writers for them. Locks
// are taken in the order Train's, one Scope's, the Index's; none is held while a
// caller's code runs. The package starts no goroutine and reads no clock.
//
// # Trade-offs
//
// A point read walks two trees, which is slower than a map; in return a list of a million
// objects stalls no writer. A commit copies a path of nodes in each tree that it touches, a
// few kilobytes of garbage; a version that changes no label, owner or declared field touches
// one tree. A snapshot that is kept pins what was removed since. The change log pins former
// versions up to [Options.LogBytes], and as much again for bulk changes; the last of these
// may be four times as large until readers have caught up. Of larger ones, such as the leave
// of a huge member, the log keeps only the names of the scopes: readers of their kinds list
// again, and no others.
package aggregate
