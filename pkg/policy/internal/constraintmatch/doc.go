// Package constraintmatch decides which objects a Gatekeeper Constraint applies to: its
// spec.match in full, as Gatekeeper's own audit takes it, without Gatekeeper.
//
// # Two parts
//
// Match.Static asks only the object itself: kinds, scope, namespaces and
// excludedNamespaces, name, labelSelector, source. What it refuses needs no second look.
// Only namespaceSelector asks another object, the Namespace of the first one, whose
// labels change on their own: Match.ReadsNamespace says whether it does for this object,
// and Match.Namespace answers by the Namespace's labels. The caller finds the Namespace,
// so that it can record that it was read. One that is absent is an error in Gatekeeper;
// here nothing is answered for it: the caller says that it does not know.
//
// # As Gatekeeper has it
//
//   - A Namespace is matched by its own name and labels, and is cluster-scoped.
//   - Other cluster-scoped objects match every namespaces, excludedNamespaces and
//     namespaceSelector.
//   - A glob has its asterisks at either end. A name also matches generateName.
//   - A scope that is neither Cluster nor Namespaced selects everything. Parse warns of it.
//   - What a member holds is Original; only the results of expansion are Generated.
//
// # Concurrency
//
// A Match is immutable. Matching allocates nothing; Parse bounds what it costs.
//
// # Trade-offs
//
// Patterns are tried one after the other: constraints have a handful, and Parse refuses
// more than MaxTerms of them. Where a name or source already excludes an object whose
// Namespace is missing, Gatekeeper reports an error and this package says no.
package constraintmatch
