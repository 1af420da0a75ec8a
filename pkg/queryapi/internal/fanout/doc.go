// Package fanout answers for a whole fleet that several processes share: it asks each for its part
// (package part) and merges them, or forwards a request about one member to the process that judges it.
//
// # Lists
//
// Each member has one judge, so that parts are merged by member, as they arrive: what is held is
// a frame of each part. Members whose judge does not answer are said to be missing, as what is not
// fresh; a part that is lost after the first byte was sent ends the response by an aborted
// connection. Where two parts have a member, which happens while it moves, one is asked again to
// leave it out.
//
// # Processes that do not answer
//
// A request that has no first byte within a second has the process asked the least that it can answer. If that takes two seconds
// more, or fails, the process is lost: who waits for it is told, and nobody asks it until it answers again, which one goroutine
// finds out. Nothing else ends by that: a large answer takes its time.
//
// # Revisions
//
// Each part has revisions of its own. What clients are sent are revisions that the process mints
// (Revisions), each of which stands for a vector of those of the parts, in a bounded log. One that is not
// there is expired: the client has to list.
//
// # Watches
//
// A watch is one of each part. Each event gets a revision of its own, which stands for how far
// each part has been sent. A part that ends, a process that is lost or comes back, and
// a member that moves end the watch with 410.
//
// # Concurrency
//
// A Handler may be used by any number of goroutines. The goroutines of a request are joined
// before it returns.
package fanout
