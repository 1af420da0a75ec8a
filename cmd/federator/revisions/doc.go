// Package revisions reserves the revisions of indexes, so that no two processes ever use
// the same one.
//
// Revisions come in numbered blocks of aggregate.BlockSize. The number of the last block is
// stored where all processes with the same readers find it: in a Lease on the hub or,
// without a hub, in a file. A reservation replaces it, by compare-and-swap, with a higher
// number that is at least the number of ten-second slots since the beginning of 2026. If
// the store loses the number or is restored to an older one, no block is repeated once the
// clock has passed those reserved; they are ahead of the clock only if more than one per
// slot was reserved. A block of the current slot starts at an offset that grows with the
// clock, so that a process whose predecessor started in the same slot, and whose file was
// lost, repeats no revision either.
//
// It is a Lease and not a ConfigMap because RBAC cannot restrict create to a name: the
// permission to create Leases in federator's namespace allows less.
//
// A Keeper reserves the next block when half of the last one is used. It retries failed
// reservations and reports them in its log and metrics. When the index has no revision
// left, the Keeper ends, and the process with it, because it could only serve stale data.
package revisions
