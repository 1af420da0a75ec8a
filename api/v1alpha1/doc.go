// Package v1alpha1 is the first version of the group federator.dev. An alpha
// version may change without notice.
//
// All kinds are cluster-scoped and live on the hub. A [PolicySource] is a git
// repository with Rego packages, and a ceiling on what they are allowed to do. A
// [FleetPolicy] applies a package to members and objects, and defines whether, where
// and how fast its violations are corrected. An [Action] is the record of one
// correction; nothing is written to a member without it.
//
// Objects are validated by the API server, with the schemas and CEL rules of the
// CustomResourceDefinitions that controller-gen generates from these types
// (`make generate`). Every admitted object can be decoded into them. What can only be
// validated against the policies or the fleet, such as the parameters of a package,
// is reported in status.
//
// # Concurrency
//
// Values are plain data: safe for concurrent reads, but not for a write concurrent
// with other uses. DeepCopy returns a copy.
//
// # Trade-offs
//
// Patches are JSON in a string, so that their hash is that of the bytes that were
// written. Percentages are whole numbers; use counts for smaller limits.
//
// +kubebuilder:object:generate=true
// +groupName=federator.dev
package v1alpha1
