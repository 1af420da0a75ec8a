// Package policyquery has the questions of the query API that are about policies: Rego
// over what a caller may list, and the violations that he may read. It is between the
// query API, which knows no policies, and the policies, which know no callers.
package policyquery
