// Package manifest reads policies that are Kubernetes objects from files:
// ConstraintTemplates and Constraints of Gatekeeper, ValidatingAdmissionPolicies and their
// bindings. They are as they are applied to a cluster, YAML or JSON, several documents to
// a file, among documents of other groups and kinds, which are ignored.
//
// It knows their shape and their places in files, and neither Rego nor the fleet: package
// module translates what it returns.
//
// # Concurrency
//
// Functions keep nothing. Templates and Constraints are immutable once Read has returned
// them and package module has completed the parameters of those that it loads.
//
// # Trade-offs
//
// Types are those of the three versions of ConstraintTemplate together, and hold only what
// is translated: importing the framework's would lose lines. What is of
// admissionregistration.k8s.io is decoded strictly into the API's own types, at v1: the
// three versions have one shape.
package manifest
