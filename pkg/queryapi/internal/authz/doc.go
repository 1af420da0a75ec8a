// Package authz determines what a caller may read: by SubjectAccessReviews on the hub
// and, where configured, on the members.
//
// # Reviews on the hub
//
// Attributes of a review are API group members.federator.dev, resource
// <plural>[.<group>] ("pods", "deployments.apps"), and the verbs get, list and
// watch. A grant is for all members, for those of a hub namespace, or for one:
//
//	all members            namespace ""                       name ""
//	members of a namespace namespace = the Cluster's          name ""
//	one member             namespace = the Cluster's          name = the Cluster's
//
// They are reviewed in this order; a wider grant makes the narrower reviews unnecessary.
//
// # Reviews on members
//
// With a MemberReviewer the result is the union of what the hub grants and what
// the member itself would let the caller read. Names of users and groups get a
// prefix, so that an identity of the hub is never mistaken for one of the member;
// system:* groups are left out, and there are no member reviews of a system:* user. A
// member that does not respond grants nothing.
//
// # Concurrency
//
// An Authorizer may be used by any number of goroutines. Identical reviews in
// flight are done once; each caller waits under its own context. All reviews of a
// call have ended before the call returns.
//
// # Trade-offs
//
// Decisions are cached, so a revocation takes effect within Options.AllowTTL and a
// grant within Options.DenyTTL. A caller with grants on single members costs one
// review per member, resource and verb each time.
package authz
