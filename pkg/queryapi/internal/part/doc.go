// Package part is what processes that share a fleet tell each other of one request: the part of
// the response that is of the members that the process judges.
//
// A part is a sequence of frames: a Header, then items of a list or events of a watch, in the
// format that the client asked for, and End. A part without an End is incomplete. Revisions are
// those of the process that serves the part; in events their places are marked, for who
// merges parts has revisions of its own.
//
// # Concurrency
//
// A Reader belongs to one goroutine.
//
// # Trade-offs
//
// Items are encoded where the objects are, so that who merges copies bytes and decodes none.
package part
