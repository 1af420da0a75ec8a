// Package policysource loads policies from git repositories.
//
// A Source specifies a remote, a ref and a path. Its newest commit is a candidate, which
// has to pass a series of gates: Fetch, Verify (its signature), Content (it contains
// policies), Compile (with all other active sources), Lint, Test (its own tests) and
// Diff (it changes no more verdicts on the live fleet than allowed). Only then does it
// become active; until then the last good commit stays active, and Status says why, with
// file and line.
//
// With Source.Rollout, a commit that passes them and changes packages is a candidate beside the
// active one first: State.Beside has the packages of both, and the active one goes on to be
// enforced. The caller compares their verdicts, and says by Source.Promoted or Source.TakenBack
// what becomes of it. A newer commit replaces it.
//
// Broken or emptied input never causes writes: while the newest commit is not the active
// one, Policies.Current is false, and the active policies are to be observed, not
// enforced. If a remote cannot be reached, or rejects the credentials, its newest commit
// is unknown: Current does not change, and Status.Contact is the time of the last
// successful contact.
//
// Results are State values: the set of all active policies, compiled together, what rolls
// out beside it, and the status of each source, replaced as one.
//
// # Concurrency
//
// Manager.Run owns one goroutine per source and joins them. At most
// Options.MaxConcurrent of them fetch and evaluate at a time. All other methods are safe
// for concurrent use and do not block. State values are immutable.
//
// # Trade-offs
//
// Nothing is kept on disk: after a restart the commit Source.LastGood is fetched by
// its hash first, which not every server allows. A fetch reads a commit's complete tree
// at depth 1, whatever the path. All sources are compiled together at each
// activation, so that a package may read the views of another source.
package policysource
