// Package client reads a fleet of clusters from federator's query API as if it
// were one: a cluster-aware informer and lister for controllers.
//
// A stock informer keys objects by namespace and name, so it works for one member, at
// /members/<namespace>/<name>. Informer works for all of them, at /fleet: its keys include
// the member.
//
// # Consistency
//
// An Informer is a client-go Reflector with a store of its own. After a lost connection it
// resumes from its last resourceVersion; when federator reports that this is too old, after
// a restart or on another replica, it lists again and reports only the differences. Members
// that join, recover or leave are ordinary events. An object whose UID changed is deleted
// and added, never updated.
//
// # Concurrency
//
// The methods of Informer and Lister are safe for concurrent use; Run is called once, and
// returns when all its goroutines have ended. Handlers are called one after the other, in
// the order of changes, from Run's goroutines: slow work belongs in a queue of the handler's
// own. Objects from a Lister or passed to a Handler are shared and must not be changed.
//
// # Trade-offs
//
// The informer lists and then watches; it does not use streaming lists (WatchList), since
// client-go collects such a stream by namespace and name and would lose all but one of the
// objects that share them in different members.
//
// The module has no replace directives and depends on client-go alone.
package client
