// Package gatekeeper reads ConstraintTemplates and Constraints from files: as they are
// applied to a cluster, YAML or JSON, several documents to a file, among documents of
// other groups, which are ignored.
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
// is translated: importing the framework's would bring the API server's libraries into a
// package that talks to no cluster, and lose lines.
package gatekeeper
