// Package checkout reads one directory of one commit from a git remote into
// memory, within bounds.
//
// It speaks git's protocol (version 0, which every server speaks) over HTTPS and
// SSH with go-git's packages for messages, packs and objects, and brings its own
// connections: go-git's follow the user's SSH configuration, dial without the
// caller's context, and put what a server says into errors whole. A repository on
// this machine is read in place, when that is allowed. No work tree is made, so
// that hooks, filters, attributes and submodules have no place to act.
//
// # What is bounded
//
// The remote's list of references, the pack as sent and as unpacked, the number of
// objects, and below the path files, directories, depth and bytes, and the time of
// all of it. See Limits. A commit is fetched at depth 1, with its whole tree: a
// path does not make a fetch smaller.
//
// # Concurrency
//
// Fetch may be called any number of times at once. It returns when its connections
// are closed; no goroutine outlives it, but for those of a connection that is
// already closed.
package checkout
