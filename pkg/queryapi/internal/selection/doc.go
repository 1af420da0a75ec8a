// Package selection reads what a request selects: parameters, label and field
// selectors, continue tokens. It finds the objects of a snapshot that are
// selected and granted, and says which members an answer is not fresh for.
//
// # Labels
//
// Label selectors are Kubernetes' own, in full. Some keys do not stand for
// labels of objects, but for the member that has them:
//
//	federator.dev/member             <namespace>.<name> of the Cluster
//	federator.dev/member-namespace   the Cluster's namespace
//	federator.dev/member-name        the Cluster's name
//	P.member.federator.dev/N         the Cluster's label P/N
//	member.federator.dev/N           the Cluster's label N
//
// An object's own label under such a key cannot be selected by.
//
// # Fields
//
// A field selector is a list of <path>=<value>, <path>==<value> and
// <path>!=<value> with commas between them; all must hold. In a value the
// characters \ , = are written \\ \, \=, as fields.ParseSelector has it. A path
// is keys with dots between them, from the root of the object at the version
// that the index holds. A key that has a dot, or another special character, is
// written in brackets: metadata.annotations['a.b/c'].
//
// A path leads through lists to all of their elements. The values of an object
// are the scalars that the path leads to: strings by their text, numbers, true
// and false as JSON has them; null is none. Where there are none, the value is
// "". "=" holds when one of the values is equal, "!=" when none is: it is the
// negation of "=".
//
// The fields that a kube-apiserver has a default or another name for
// (spec.unschedulable of a Node is "false" when absent) compare as there.
// metadata.resourceVersion and the annotations that the query API adds are
// compared as it serves them.
//
// # Tokens and pins
//
// A continue token names a revision and a position, and is bound to a caller
// and a selection by a MAC. The snapshot of the revision is kept in Pins, which
// are bounded. A token whose snapshot is gone, or that another process gave, is
// 410 Gone with a token that continues at the newest snapshot, as from an API
// server whose storage was compacted.
//
// # Concurrency
//
// Selectors, Params and Sealers are immutable; Pins lock. A Residual's scratch
// space belongs to one goroutine. Those that look for a field are joined before
// anything that they found is yielded.
//
// # Trade-offs
//
// A field that the index does not declare is looked for in the bytes of every
// object that the rest of the selection leaves: a decompression, some 5 µs for
// a Pod, and 0.5 µs for each kB of JSON, without building the object
// (BenchmarkFind). All processors look, a window of objects at a time, that grows
// from 64 to 4,096 so that a short page decodes little more than it needs.
package selection
