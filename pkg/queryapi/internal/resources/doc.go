// Package resources answers get, list and watch of the resources of a fleet, as a
// kube-apiserver answers them for one cluster.
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
// A watch reads the index's log of changes, each with a revision of its own, and
// follows it. Changes of members count, too: objects of a member that joins,
// leaves, is relabelled or is granted or denied come as ADDED and DELETED. What
// comes so without a change of the object keeps the object's own revision when
// it is ADDED and has the present one when it is DELETED; a bookmark follows,
// where the client takes them, so that it resumes from the present.
//
// A watch cannot be resumed, and is answered with 410, across what the log does
// not tell: a label of a member that changed where such labels select, a
// member that left where the caller may not read everything, and grants that
// changed. These are remembered by user, kind and place (see histories): a client
// that was cut off while it was told what a change of them brings and takes is
// told so again, or to list. What the hub says of lists and of watches is kept apart
// and may be of different ages: where it differs, it is asked again what both are.
//
// Events are encoded once for all watches that send them. A watch holds no
// queue: it reads the log as fast as its client reads, which has a bounded time
// for each block of bytes. What a slow client keeps alive is what the log may
// keep: once it has passed a watch by, the watch ends with 410.
//
// # Concurrency
//
// A Handler may be used by any number of goroutines. A long list is encoded by
// as many goroutines as there are processors; they are gone when it ends.
//
// # Trade-offs
//
// A page is found before the first byte is sent, since its head says whether
// more follow; the objects of a page are encoded as they are sent. Table rows
// cost some ten times what JSON does.
package resources
