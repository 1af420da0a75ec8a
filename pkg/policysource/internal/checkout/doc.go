// Package checkout reads one directory of one commit from a git remote into memory,
// within limits.
//
// It uses git's protocol (version 0, which every server supports) over HTTPS and SSH,
// with go-git's packages for messages, packs and objects, but with its own connections:
// go-git's use the user's SSH configuration, dial without the caller's context, and
// include unlimited server output in errors. Local repositories are read in place, if
// allowed. There is no work tree, so that hooks, filters, attributes and submodules have
// no effect.
//
// # Limits
//
// Limited are the list of refs, the pack as sent and as unpacked, the number of objects,
// the files, directories, depth and bytes below the path, and the total time. See Limits.
// A commit is fetched at depth 1 with its complete tree: a path does not make a fetch
// smaller.
//
// # Concurrency
//
// Fetch is safe for concurrent use. It returns when its connections are closed; no
// goroutine outlives it, except for those of a connection that is already closed.
package checkout
