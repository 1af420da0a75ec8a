// Package module loads policies: it parses Rego and its METADATA, compiles it
// strictly, refuses what the documents of a fleet could not answer exactly, and
// determines what each package can read.
//
// # What is refused
//
// Besides what OPA's strict compiler refuses: builtins outside the allowlist; with
// (tests replace documents, policies do not); data beyond data.fleet, the package
// itself and the packages federator.lib.* of its own source; data, data.fleet, one
// of its documents of objects or views, or a whole kind as a value; a kind or a view
// that is not a constant string; view rules that are not "contains" or read
// anything but input.ref and input.object, helpers included; input that the
// subject does not have; incomplete METADATA.
//
// # What a package can read
//
// An abstract evaluation of the compiled rules follows where every variable can
// come from, through functions and rules, regardless of order. What is compared,
// printed, passed to a builtin or put into a set is read whole; what is only stepped
// through is read as a path. Pruning to the result changes no evaluation, including
// conflicts of rules and errors of builtins. Where the analysis gives up, everything
// counts as read.
//
// # Concurrency
//
// Load starts no goroutine. A Set is immutable and may be shared.
//
// # Trade-offs
//
// A variable has one set of sources for the whole rule, and a parameter of a
// function one for all calls: coarser than evaluation, never narrower.
package module
