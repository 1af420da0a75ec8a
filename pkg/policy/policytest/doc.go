// Package policytest runs the tests of a tree of policies: Rego tests as "opa test"
// does, and fleet fixtures, which hold the engine to what it should say of a whole
// fleet.
//
// Rego tests are the rules test_* of *_test.rego files. Errors of builtins fail
// them, and builtins have the bounds that they have in the engine.
//
// # Fleet fixtures
//
// A *_fleet.yaml file beside a policy has one case in each of its documents:
//
//	name: an Ingress whose host another member serves
//	parameters: {shared: []}           # of one binding, of the directory's policy
//	members:
//	- name: fleet/eu-1
//	  labels: {region: eu}
//	  version: v1.36.3
//	  apis: [networking.k8s.io/v1]
//	  scopes: {Ingress.networking.k8s.io: Forbidden}
//	  objects: [{apiVersion: …, kind: …, metadata: {…}}]
//	expect:
//	- subject: fleet/eu-1 Ingress.networking.k8s.io shop/web
//	  state: Unknown
//	  violations: [host a.example is also served from fleet/us-1]
//
// Instead of parameters, bindings may have complete policy.Bindings; then an
// expectation names its binding where there are several. It has key instead of
// subject for the key of a view, and exempt: true where all violations are. Every
// verdict that is not expected must be Known and clean.
//
// Scopes of the kinds that the bound policies name are Synced unless the case says
// otherwise; exemptions have not expired. Values of Secrets and ConfigMaps are cut, as they are at ingest.
//
// Each case is evaluated on its whole fleet, and again by an engine that follows
// the fleet from nothing, change by change, in an order that Options.Seed decides.
//
// # Concurrency
//
// Run may be called by any number of goroutines. OPA's runner starts goroutines;
// they have ended when Run returns.
//
// # Trade-offs
//
// A tree may be a stranger's: a test is bounded in time and by the builtins' limits,
// and what it prints is kept only where Options.Print asks for it. How many tests
// there are only the context bounds.
//
// A tree that does not load, or a fixture that is not written right, is an error
// for all of the tree: what is left would be tests of something else.
package policytest
