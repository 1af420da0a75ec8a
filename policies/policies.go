// Package policies is the library of policies that comes with federator, as a tree
// of files for policy.ReadSource: <category>/<name>/<name>.rego, each with its Rego
// tests and fleet fixtures. README.md lists them.
//
// # Concurrency
//
// FS is immutable.
//
// # Trade-offs
//
// Tests and fixtures are embedded as well, some hundred kilobytes, so that who has
// the binary can run them.
package policies

import "embed"

// FS is the tree. lib holds helpers that policies share.
//
//go:embed */*/*.rego */*/*_fleet.yaml
var FS embed.FS
