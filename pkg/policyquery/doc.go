// Package policyquery serves the queries of the query API that are about policies: Rego over
// what a caller may list (rego), the violations that a caller may read (violations), and the
// Plans of a policy with the targets that a caller may list (plans). It connects queryapi, which
// knows nothing of policies, with the policy engine and the Plans on the hub, which know nothing
// of callers: what is outside a caller's grants reaches neither a query nor its result. Of the
// targets of Plans, it is counted how many there are in all.
//
// Where several processes share the fleet, the one that is asked evaluates Rego over its own part and what it pulls of the
// others (package pulled), which decide themselves what the caller may read. Violations are listed, and previews made,
// by each of what it judges.
package policyquery
