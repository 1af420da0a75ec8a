// Package compiled compiles queries over OPA's compiled modules to Go closures over values.
//
// # What it is
//
// OPA's compiler stays the front end: it parses, checks, rewrites and orders. What topdown
// then finds out at each step of each evaluation is known here once: which variables are
// bound, which rules a reference means, what is constant, which loops there are. Variables
// are slots of a frame, references follow fields of a [value.Value] without an ast.Value,
// comprehensions and every are loops, complete rules are memoised for an evaluation, and
// builtins that are called often are done on values.
//
// # Exactly Rego
//
// topdown defines what a query is, and [Machine.Run] has one contract: if it returns no
// error, topdown has none either, and the same solutions, and reads the same documents. Any
// error means that topdown is asked: it alone knows which of several errors is reported,
// and it may have a result after all, where something here was not certain. So nothing here
// has to be right about errors but that there is one.
//
// What is not compiled is an [Unsupported], with the rule and why: with, rules whose name
// is not constant, patterns that bind no value. The caller runs topdown then.
//
// OPA's conformance cases, random programs, hand-written corners and random calls of
// builtins are held to topdown by tests, the reads included.
//
// # Concurrency
//
// A Program may be run by any number of Machines at a time. A Machine belongs to one
// goroutine; it keeps its memory from one evaluation to the next, until Release.
//
// # Why closures
//
// OPA's plan (v1/ir) is what a register machine would start from. It has lost which rules a
// reference means where keys are known, evaluates rules as a whole where topdown evaluates
// one key, and reads more of data so: the dependencies of a verdict would be wider than
// topdown's. Closures over ast.Body keep topdown's order and reads; shipped rules take a
// sixteenth of what topdown takes, in the mean.
//
// # Trade-offs
//
// Where solutions after the first cannot change anything but may fail, they are looked for
// nevertheless, as topdown does. A query that fails is evaluated twice.
package compiled
