// Package v1alpha1 is the first version of the group federator.dev. An alpha
// version may change without notice.
//
// All kinds are cluster-scoped and live on the hub. A [PolicySource] is a git
// repository with Rego packages, and a ceiling on what may come of them. A
// [FleetPolicy] binds a package to members and objects, and says whether, where
// and how fast what it finds is corrected. An [Action] is one correction on its
// way to a member, or done: the record without which nothing is written.
//
// What objects must be like is checked by the API server, by the schemas and CEL
// rules of the CustomResourceDefinitions that controller-gen makes of these types
// (`make generate`). An object that was admitted can be decoded into them. What
// needs the policies or the fleet for an answer, such as parameters of a package's
// schema, is said in status.
//
// # Concurrency
//
// Values are plain data: to be read by many or changed by one. DeepCopy makes
// copies.
//
// # Trade-offs
//
// Patches are JSON in a string, so that their hash is that of what was written,
// to the byte. Percentages are whole numbers: counts bound what is smaller.
//
// +kubebuilder:object:generate=true
// +groupName=federator.dev
package v1alpha1
