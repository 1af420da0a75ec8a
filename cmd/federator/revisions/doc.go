// Package revisions gives processes the revisions of their indexes, so that those of no
// two processes meet and none comes twice.
//
// Revisions come in numbered blocks of aggregate.BlockSize. The number that was reserved
// last is kept where all processes whose readers are the same look: in a Lease of the hub
// or, without a hub, in a file. A reservation replaces it, by compare-and-swap, by one
// above it that is at least the tens of seconds since 2026 began: a store that loses the
// number, or goes back to an older one, repeats no block once the clock has passed those
// that were reserved. They are ahead of it where more than one each ten seconds was. The
// block of the moment is begun as far on as the moment is, so that a process whose
// predecessor was of the same ten seconds, and lost its file, repeats nothing either.
//
// It is a Lease and not a ConfigMap because RBAC cannot limit a create to a name: who may
// create Leases in federator's namespace can do less with them.
//
// A Keeper reserves the next block at half use of the last. What it cannot reserve it
// asks for again, tells in its log and metrics, and ends when the index has no revision
// left: the process ends with it, because it could only tell of what was.
package revisions
