// Package authz decides what a caller may read: by SubjectAccessReviews on the
// hub and, where configured, on the members.
//
// # The questions
//
// The hub is asked about API group members.federator.dev, resource
// <plural>[.<group>] ("pods", "deployments.apps"), with the verbs get, list and
// watch. A grant reaches all members, or those of a hub namespace, or one:
//
//	all members            namespace ""                       name ""
//	members of a namespace namespace = the Cluster's          name ""
//	one member             namespace = the Cluster's          name = the Cluster's
//
// They are asked in this order, and a wider grant spares the narrower questions.
//
// # The members' own answer
//
// With a MemberReviewer the result is the union: what the hub grants, and what
// the member itself would let the caller read. Names of users and groups get a
// prefix, so that an identity of the hub is never taken for one of the member;
// system:* groups are left out, and for a system:* user no member is asked. A
// member that does not answer grants nothing.
//
// # Concurrency
//
// An Authorizer may be used by any number of goroutines. Identical questions in
// flight are asked once; each caller waits under its own context. All questions
// of a call are answered before the call returns.
//
// # Trade-offs
//
// Answers are kept for a while, so a revocation takes effect within
// Options.AllowTTL and a grant within Options.DenyTTL. A caller with a grant on
// single members costs one question per member, resource and verb each time.
package authz
