// Package policytest runs the tests of a tree of policies: Rego tests as "opa test"
// does, fleet fixtures, which compare the verdicts of the engine on an entire fleet
// with expected ones, and suites of Gatekeeper.
//
// Rego tests are the rules test_* of *_test.rego files. Errors of builtins fail
// them, and builtins have the same limits as in the engine.
//
// # Fleet fixtures
//
// A *_fleet.yaml file next to a policy has one case in each of its documents:
//
//	name: an Ingress whose host another member serves
//	now: 2026-01-02T15:04:05Z          # required if a policy asks what has passed
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
// otherwise; exemptions have not expired by now, or without it at all. Values of Secrets and ConfigMaps are redacted, as
// at ingest.
//
// Each case is evaluated on its complete fleet, and again by an engine that starts with
// an empty one and applies change after change, in an order that Options.Seed decides,
// while time passes until now.
//
// # Suites
//
// A file with documents of kind Suite (test.gatekeeper.sh) is read as gator reads it, with
// the files that it names, which are of no other test. The engine judges the object of a
// case by an inventory, and Namespaces, that are the listed files alone; assertions are about
// the messages. Expansion adds the objects that it generates. What differs from gator:
//
//   - An AdmissionReview is its object. A case is skipped with the reason if it is about a
//     deletion, or if the template may read what else a request has.
//   - A case whose inventory has one kind at two versions is skipped: a member's are held at
//     one.
//   - Mutators are not applied.
//
// # Concurrency
//
// Run may be called by any number of goroutines. OPA's runner starts goroutines;
// they have ended when Run returns.
//
// # Trade-offs
//
// A tree may be untrusted: a test is bounded in time and by the limits of builtins, and
// its output is kept only on Options.Print. The number of tests is bounded by the
// context only.
//
// A tree that does not load, or an invalid fixture, is an error for the entire tree: the
// rest would be tests of something else.
package policytest
