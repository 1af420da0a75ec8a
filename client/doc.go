// Package client reads a fleet of clusters from federator's query API as if it
// were one: a cluster-aware informer and lister for controllers.
//
// A stock informer keys objects by namespace and name, so it serves for one
// member, at /members/<namespace>/<name>. Informer serves for all of them, at
// /fleet: its keys carry the member.
//
// # Consistency
//
// An Informer is a client-go Reflector with a store of its own. It resumes
// after a cut where it was, by the resourceVersion that federator gives; it
// lists again when federator says that this is too old, after a restart or on
// another replica, and reports only what differs. Members that join, recover or
// leave are ordinary events. An object whose UID changed is deleted and added,
// never updated.
//
// # Concurrency
//
// The methods of Informer and Lister are safe for concurrent use; Run is called
// once, and returns when all that it started has ended. Handlers are called one
// after the other, in the order of changes, from Run's goroutines: what takes
// long belongs into a queue of the handler's own. An object that a Lister or a
// Handler gives is shared and must not be changed.
//
// # Trade-offs
//
// The informer lists and then watches; it does not ask for a streamed list
// (WatchList), since client-go collects such a stream by namespace and name and
// would lose all but one of the objects that share them in different members.
//
// The module has no replace directives and depends on client-go alone.
package client
