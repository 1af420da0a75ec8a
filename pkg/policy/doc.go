// Package policy evaluates Rego over a fleet: policies continuously and exactly, ad-hoc
// queries on request.
//
// # From files to verdicts
//
//   - Load reads Rego packages with METADATA: all of them or none, with the file and
//     line of every error. Static analysis finds what each package reads of objects;
//     what could not be kept up to date is refused.
//   - A Binding says where a package applies, to which subjects (objects, members
//     or the keys of a view), with which parameters. Verdicts belong to bindings.
//   - An Engine holds the verdicts of all bindings on one snapshot of the index.
//     Apply takes it to the next one: it updates views with what changed, finds the
//     subjects that read what changed in a reverse table of reads, misses included,
//     and evaluates only these, in parallel. What read an instant that has passed since
//     is found in the same table; Advance does that alone, where nothing else changes. SetExternal
//     does the same for External, documents from outside the fleet: a State is of some, too.
//   - A State is what the engine publishes, once for each batch: immutable, of one
//     snapshot, as of one time, which never falls. Its verdicts are Known; Unknown where something that they read is
//     incomplete, or its contribution to a view failed; or Error. Completeness is not
//     stored with a verdict: verdicts that have read the same kinds and members share
//     a read set, so that a member that goes Stale turns a million of them Unknown
//     without touching any.
//
// Query evaluates an ad-hoc query over data.fleet of one snapshot, as far as its Reader
// may read. What the Reader may not read is absent from the documents, so that no
// result, error, order or limit depends on it.
//
// # What an evaluation sees
//
// data.fleet is a read-only store over the snapshot and the views, which records
// what is read of it. Documents are built straight from the index's stored bytes,
// with only the parts that a package can read. Nothing is shared between
// evaluations above the recording, and OPA's rule index is off: it would read
// complete documents to choose among rules.
//
// Time, results, reads and views are bounded (Limits); builtins that could
// amplify are limited inside, because OPA cannot be interrupted there. The time of
// an evaluation is the CPU time that it uses, so that a policy is not charged for a
// busy machine. A policy is quarantined, visibly and temporarily, for a member whose
// subjects repeatedly exceed that time, or use as much and fail otherwise, by too large
// a result or by an error. So is one whose slow evaluations for a member take twenty
// seconds more than a quarter of the processors could do meanwhile: verdicts on other
// members wait for them.
//
// # Two versions of a policy
//
// Beside gives a Set in which a candidate's packages stand beside the active ones, under names of their own: they read
// each other's views, and all others read the active ones. A Binding may have a Next: the engine evaluates both, on all
// members, and a State has them as one policy. Verdicts are those of the next version in the members in which it has
// taken its place, and on keys of views once it has everywhere; what changes of the other is no change of the policy.
// When members go over nothing is evaluated, nor when the candidate becomes active: what has the same rules, parameters
// and views goes on. What both versions find keeps the time at which it was first seen. State.Compare says how they
// differ.
//
// # Several processes
//
// Several processes may share a fleet. Each reads some members and judges those whose Role in its index says so; of the
// others it knows what their judges tell, in a second index. Policies see both as one fleet. A State's Export is what a
// process tells: of each object what it contributes to views, and what policies read of it through data.fleet, which
// is named by a digest. What a peer has told for other policies than one's own is Unknown, from the moment at which
// either has them. Of the keys of views a KeyOwner says who judges which.
//
// # Layers
//
// This package is the door. Below it, references run one way: internal/engine and
// internal/adhoc, then state, then projection, then matview, completeness, instants, external, binding and quarantine, then
// verdict, budget, fleetdoc and sorted; module loads packages, limits bounds builtins.
// Package explain evaluates a verdict again, for people.
//
// # Concurrency
//
// An Engine's Reset, Apply and Configure belong to one goroutine; Run owns the
// others that evaluate concurrently with it, and joins them. A Set and a State are
// immutable. Any number of queries may run at once; each ends with its context or its
// time. The limits of builtins are installed once, for the entire process: OPA consults
// its own table before that of a query.
//
// # Trade-offs
//
// A subject that is clean and has read nothing but itself takes no memory. In
// return, listing all verdicts walks the objects again; listing violations and errors
// costs no more than their number. Reads are remembered as 64-bit hashes: two that
// collide cost an evaluation too many, never one too few. Instants that have passed are
// not remembered: where the clock is set back, policies that ask are evaluated whole. A policy that reads an entire
// view, kind or member is evaluated again with every change of it: allowed, counted,
// and warned of by Lint.
package policy
