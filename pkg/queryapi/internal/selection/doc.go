// Package selection parses what a request selects: parameters, label and field selectors,
// continue tokens. It finds the objects of a snapshot that are selected and granted, and the
// members for which a response is not fresh.
//
// # Labels
//
// Label selectors are Kubernetes' own, in full. Some keys are not labels of the object but
// of the member that has it:
//
//	federator.dev/member             <namespace>.<name> of the Cluster
//	federator.dev/member-namespace   the Cluster's namespace
//	federator.dev/member-name        the Cluster's name
//	P.member.federator.dev/N         the Cluster's label P/N
//	member.federator.dev/N           the Cluster's label N
//
// An object's own label with such a key cannot be selected.
//
// # Fields
//
// A field selector is a comma-separated list of <path>=<value>, <path>==<value> and
// <path>!=<value>; all must match. In a value the characters \ , = are written \\ \, \=, as
// fields.ParseSelector has it. A path is keys separated by dots, from the root of the object
// at the version that the index holds. A key that has a dot, or another special character,
// is written in brackets: metadata.annotations['a.b/c'].
//
// A path goes through lists to all of their elements. The values of an object are the
// scalars at the path: the text of strings; numbers, true and false as in JSON; null is no
// value. Without any, the value is "". "=" matches when one of the values is equal, "!="
// when none is: it is the negation of "=".
//
// Fields for which kube-apiserver has a default or another name (spec.unschedulable of a
// Node is "false" when absent) compare as they do there. metadata.resourceVersion and the
// annotations that the query API adds are compared as it serves them.
//
// # Tokens and pins
//
// A continue token names a revision and a position, and is bound to a caller and a selection
// by a MAC. The snapshot of the revision is kept in Pins, which are bounded. A token whose
// snapshot is gone, or that another process issued, is 410 Gone with a token that continues
// at the newest snapshot, as from an API server whose storage was compacted.
//
// # Concurrency
//
// Selectors, Params and TokenCodecs are immutable; Pins lock. A Scratch belongs to one
// goroutine. Goroutines that match in parallel are joined before their matches are yielded.
//
// # Trade-offs
//
// A field that the index does not declare is searched in the bytes of every object that the
// rest of the selection matches: a decompression, some 5 µs for a Pod, and 0.5 µs for each
// kB of JSON, without building the object (BenchmarkFind). All processors search, one window
// of objects at a time, which grows from 64 to 4,096 so that a short page decodes little
// more than it needs.
package selection
