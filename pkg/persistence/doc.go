// Package persistence keeps an aggregate.Index on disk, so that a process that is started again
// goes on where the one before has ended: it lists nothing that its members' servers can continue,
// and readers go on with the revisions that they know.
//
// Each member has a directory with a segment, which is all that there was of it at one revision,
// and logs of the commits since. Every frame of a file has a checksum, and says with the data how
// far the member had been read for it. One goroutine, Store.Run's, writes commits in their order
// and shows them to readers afterwards: a file has the last revision that readers may have seen,
// so that none is ever issued again with other content. Where the disk does not take a commit
// within a second readers do not wait for it; what they see until then is Expired after a restart.
//
// What is on disk is never repaired. A frame that is not as it was written ends its log, a segment
// that is not sound is dropped: the member's objects are listed again. So is what was read by other
// rules than those of now (Options.Form). What was written and not synced may be lost with the
// power, and is then read from the members: after a start of the machine readers list again.
//
// A Store belongs to one process, which a lock says; its methods are called in order: Open, Load,
// Run, Close. Writing costs the writers of the index nothing but the memory of commits that are not
// written yet, which the index's change log bounds: where it has lost some, all is written anew.
package persistence
