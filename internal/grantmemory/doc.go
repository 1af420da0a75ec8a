// Package grantmemory keeps on disk under which grants callers of the query API were sent objects: a
// watch is resumed over a restart only where these are still its caller's.
//
// What is on disk is trusted only if the process that wrote it cannot have sent anything that it did not
// write down before. That process writes what changes before anything is sent. If it cannot, it removes
// the file; and if it cannot do that either, it holds back what is to be sent under other grants than
// those on disk until the file is too old to be trusted: it says every few seconds that it is alive, and
// is trusted after its end for Lease, or for as long as the machine runs if it has ended in order.
//
// There are only digests in the file. It is not synced: over a restart of the machine no watch is resumed.
package grantmemory
