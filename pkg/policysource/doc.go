// Package policysource turns git repositories into policies.
//
// A Source names a remote, a reference and a path. Its newest commit is a
// candidate, and passes gates in turn: Fetch, Verify (its signature), Content (it is
// not emptied), Compile (with all other active sources), Lint, Test (its own tests)
// and Diff (what it changes on the live fleet, within a bound). Only then does it
// become active; until then the last good commit stays, and Status says why, with
// file and line.
//
// Broken or emptied input never writes: while the newest commit is not the active
// one, Policies.Current is false, and what is active is to be observed, not
// enforced. A remote that cannot be reached, or refuses the credentials, says
// nothing about its newest commit: Current stays, and Status.Contact says since when
// nothing was heard.
//
// Results are State values: the set of all active policies, compiled together, and
// the status of each source, replaced as one.
//
// # Concurrency
//
// Manager.Run owns one goroutine per source and joins them. At most
// Options.Parallel of them fetch and judge at a time. All other methods may be called
// by any number of goroutines and do not block. State values are immutable.
//
// # Trade-offs
//
// Nothing is kept on disk: after a restart the commit Source.LastGood is fetched by
// its hash first, which not every server allows. A fetch reads a commit's whole tree
// at depth 1, whatever the path. All sources are compiled together at each
// activation, so that one may read the views of another.
package policysource
