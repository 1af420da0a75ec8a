// Package limits bounds what an evaluation can do: Capabilities is an allowlist of
// builtins, and those whose cost or result can outgrow their arguments refuse
// arguments for which it would.
//
// OPA cannot cancel within a builtin, so a limit is checked before the builtin
// runs, from the arguments alone and in bounded time itself. A refused call ends
// the evaluation with an *Error, whether builtin errors are strict or not.
//
// # What is left out
//
// Builtins that read the clock, the network, randomness or the environment (time
// zones included: only UTC is allowed), that sign or verify, that are deprecated, and
// those whose cost no cheap check of the arguments bounds: bits.lsh,
// graph.reachable_paths, regex.globs_match, strings.render_template,
// json.marshal_with_options, json.match_schema, json.verify_schema, graphql.*.
//
// # Concurrency
//
// All functions are safe for concurrent use.
//
// # Trade-offs
//
// OPA prefers the builtins of its own global table to those of a query, so the
// limits can only be installed there: importing this package installs them, once, at
// initialisation, for every evaluation of the process. They are wide enough that
// other users of OPA in the process will not reach them. The unification operator
// and sets compare values without a builtin and are not limited; the bounds on
// documents, and on time between builtins, apply instead.
package limits
