// Package handover gives what one process holds of a member to another one that is to hold it, where several share a fleet, so
// that a move costs the member's API server no list.
//
// A [Taker] asks who holds the member, one after the other, with
//
//	GET /handover/v1/member?name=<member>&uid=<UID>
//
// and a [Giver] answers with a stream of persistence's frames (persistence.Send), compressed by zstd: all scopes of which it is
// known how far they were read, as of one snapshot of the index, each with its resourceVersions. The objects of a scope and the
// resourceVersions are of one commit, so that a watch from there misses nothing that has changed since. They are as the
// giver's index has them, redacted as configured: a scope that would be held in another form here is not taken.
//
// With
//
//	GET /handover/v1/seen?name=<member>&uid=<UID>
//
// it asks since when the violations of the member are there, or of keys of views where no member is named.
//
// Nothing rests on it. What does not come, or not whole, or makes no sense, is listed, as is what the member cannot go on from.
// Only peers may ask, which [GiverOptions].Peer tells.
//
// # Bounds
//
// A giver writes a block at a time, within a rate for all, and cuts who does not read for a while. A taker asks one
// process for a few members at a time, reads a block at a time, and gives up a process that says nothing for a while, or is too slow: it is
// not asked again for a while then. What no index has written ends what is asked of that member only. What is taken is within the member's budget.
package handover
