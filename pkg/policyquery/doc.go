// Package policyquery serves the queries of the query API that are about policies: Rego over
// what a caller may list (rego), and the violations that a caller may read (violations). It
// connects queryapi, which knows nothing of policies, with the policy engine, which knows
// nothing of callers: what is outside a caller's grants reaches neither a query nor its
// result.
package policyquery
