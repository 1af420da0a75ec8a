// Package constraintschema does with the parameters of a constraint what an API server does
// with them by the CustomResourceDefinition that Gatekeeper makes of a template: it drops
// nulls, applies defaults, prunes unknown fields, and validates what remains.
//
// # Concurrency
//
// A Schema is immutable and may be used by several goroutines.
//
// # Trade-offs
//
// It is the API server's own code, without the rules about definitions themselves that
// live with its registry and import a client: that a schema is structural, its defaults are
// valid and its types exist is checked, details such as which formats there are is not.
// Defaults precede validation, as in a cluster; gator validates first, and thus refuses a
// constraint that leaves out a required field with a default.
package constraintschema
