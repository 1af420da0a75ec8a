// Package resources serves get, list and watch of the resources of a fleet, as a
// kube-apiserver does for one cluster.
//
// # Objects
//
// An object is sent as its member has it, in bytes that are spliced and never
// decoded: metadata.resourceVersion becomes the revision of the object's last
// change in the index, since client-go resumes watches from there, and two
// annotations say which member has it and at which resourceVersion of its own.
//
// # Watches
//
// A watch sends the changes in the index's log, each with its own revision. Changes of
// members and grants are events, too: objects of a member that joins, leaves, is
// relabelled, or is granted or revoked, are ADDED and DELETED. Such an event has the
// object's own revision when it is ADDED and the present one when it is DELETED; a
// bookmark follows, if the client accepts bookmarks, so that it resumes from the present.
//
// A watch cannot be resumed, and gets 410, across what the log does not contain: a changed
// label of a member where such labels select, a member that left where the caller may not
// read everything, and changed grants. Grants are recorded by user, kind and location (see
// grantHistories): a client that was interrupted while it was sent the effect of changed
// grants is sent it again, or has to list. Over a restart, a watch is resumed where the grants
// are those that are remembered of its key (see GrantMemory). Decisions on list and on watch are cached
// separately and may differ in age: where they differ, both are reviewed again.
//
// Events are encoded once for all watches that send them. A watch has no queue: it reads
// the log as fast as its client reads, with a timeout for each write. What a slow client
// keeps in memory is bounded by the log: a watch behind its start ends with 410.
//
// # Concurrency
//
// A Handler may be used by any number of goroutines. A long list is encoded by
// as many goroutines as there are processors; they are gone when it ends.
//
// # Trade-offs
//
// A page is selected before the first byte is sent, since its metadata says whether
// more follow; the objects of a page are encoded as they are sent. Table rows
// cost some ten times what JSON does.
package resources
