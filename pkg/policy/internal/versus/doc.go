// Package versus has no code but tests. They hold rules of the shipped policies, written
// by hand in Go, beside the same rules in Rego: the least that a rule can cost, by which
// what Rego costs is measured.
//
// # What is written by hand
//
// All shipped policies whose rules read their own object alone, and some of those that
// read data.fleet, each as a function of the same decoded Values, and as a function of the
// stored bytes, which it walks through once, without decoding. Parameters are prepared
// once, as a Go programmer would. Tests hold all of them to the same messages and details,
// also of objects that lack fields or have others than they should. Remedies are left out.
//
// # What is compared
//
// A violation is kept as a message and the JSON of its details, by both sides. One object
// in ten has some. What is read of the fleet is decoded already, and all sides read the same
// documents; whether a time has passed, Go asks of the clock itself, and Rego of
// data.fleet.passed. From stored bytes there are two baselines: one decodes what the rule
// reads, as the engine does, and then does what is done by hand; the other reads only.
//
// # What is left out
//
//   - certificates.expiry, quota.quota_sum, network.overlapping_cidrs,
//     workloads.chart_skew and workloads.gatekeeper_drift are about keys of views, and
//     upgrades.removed_apis and upgrades.version_skew about members: they have few
//     subjects.
//   - certificates.webhook_ca parses certificates, which takes the same time in both.
//   - availability.no_disruption_budget finds little but remedies.
//   - hygiene.ending_exemption, network.default_deny_missing and workloads.config_drift
//     do what others here do.
package versus
