// Package policy evaluates Rego over a fleet: policies all the time, and exactly;
// queries when somebody asks.
//
// # From files to verdicts
//
//   - Load reads Rego packages with METADATA: all of them or none, with every
//     mistake at its file and line. It finds by static analysis what each package
//     reads of objects, and refuses what could not be kept up to date.
//   - A Binding says where a package applies, to which subjects (objects, members
//     or the keys of a view), with which parameters. Verdicts belong to bindings.
//   - An Engine holds the verdicts of all bindings on one snapshot of the index.
//     Apply takes it to the next one: views take in what changed, the subjects
//     that read what changed are found by a reverse table of reads, misses
//     included, and only they are evaluated, in parallel.
//   - A State is what the engine publishes, once for each batch: immutable, of one
//     snapshot. Verdicts in it are Known, Unknown where something that they read
//     is incomplete or could not contribute to a view, or Error. Completeness is no part of what is stored for a
//     verdict: verdicts that have read the same kinds and members share a class,
//     so that a member which goes Stale turns a million of them Unknown at no
//     cost but looking.
//
// Query answers an ad-hoc query over data.fleet of one snapshot, as far as its
// Reader may read: what is outside is not in the documents, so that no answer,
// error, order or bound tells of it.
//
// # What an evaluation sees
//
// data.fleet is a read-only store over the snapshot and the views, which records
// what is read of it. Documents are made straight from the index's stored bytes,
// with only the parts that a package can read. Nothing is shared between
// evaluations above the recording, and OPA's rule index is off: it would read
// documents whole to choose among rules.
//
// Time, results, reads and views are bounded (Limits); builtins that could
// amplify are limited inside, because OPA cannot be interrupted there. The time of
// an evaluation is the CPU time that it uses, so that a machine with much else to do
// is not held against a policy. One that overruns it again and again is quarantined
// for the member whose subjects do, for a while, and says so; so is one that uses as
// much time in failing otherwise, by giving more than it may or by an error, and one
// whose slow evaluations for a member take twenty seconds more than a quarter of the
// processors could do meanwhile: verdicts on other members wait for them.
//
// # Concurrency
//
// An Engine's Reset, Apply and Configure belong to one goroutine; Run owns the
// others that evaluate beside it, and joins them. A Set and a State are immutable.
// Any number of queries may run at once; each ends with its context or its time.
// Builtins' guards are installed once, for the whole process: OPA looks its own
// table up before a query's.
//
// # Trade-offs
//
// A subject that is clean and has read nothing but itself costs no memory. In
// return, asking for all verdicts walks the objects again; what has violations or
// failed is listed at the cost of the list. Reads are remembered as 64-bit hashes:
// two that collide cost an evaluation too many, never one too few. A policy that
// reads a view, a kind or a member whole is evaluated again with every change of
// it: allowed, counted, and warned of by Lint.
package policy
