// Package segments is an append-only log of small documents on disk, which are found by what they
// are about: member, kind, namespace, name, UID and policy. It is what history is kept in.
//
// What is appended goes to the active segment, a file of checksummed frames (internal/frames), with
// one write(2) for a batch: what Append has returned survives SIGKILL, and Sync makes it survive a
// loss of power. A full segment is sealed in the background (Run): its entries are sorted by object,
// so that all that happened to one object is in one or two blocks of 64 KiB, compressed, with an
// index from facets to blocks. Sealed segments expire whole, the oldest first.
//
// Positions are durable names: they are never given out twice, also where a restart finds that the
// end of the log was lost. Nothing is repaired, and nothing is missing silently: positions that were
// or may have been given out and are not there any more are yielded to readers as a GapError.
//
// All methods of a Log may be called concurrently. Readers take a snapshot and never wait for
// writers, nor writers for them: a segment that expires while it is read is closed afterwards.
//
// Trade-offs: within a sealed segment entries are in the order of objects, not of time. Reading one
// object costs about one block a segment; reading a sealed segment in order of positions decodes
// all of its blocks that may have an answer. A segment costs a file descriptor and about 30 KB of
// memory. What a reader has not come to yet stays on disk though it has expired: a reader that waits
// for others between entries reads pages.
package segments
