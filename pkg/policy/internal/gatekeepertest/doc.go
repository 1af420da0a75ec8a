// Package gatekeepertest holds what federator does with Gatekeeper's policies to
// Gatekeeper itself: its matcher, its framework and its test suites, read from the
// module's own tree.
//
// It is a module of its own: only tests use it, and the product's go.mod carries none of
// Gatekeeper's dependencies. It lies here because the packages that it tests are
// internal to package policy.
package gatekeepertest
