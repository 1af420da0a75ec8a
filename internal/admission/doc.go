// Package admission states whether the hub proves who people are.
//
// Who creates an Approval or a Rollback, and who has changed the spec of a FleetPolicy, are fields
// that a client writes. They can be believed only while the hub's admission checks them, by the
// ValidatingAdmissionPolicies of the chart. A [Prover] compares these and their bindings with
// those that it was built with, and tries to create an Approval under a false name, as a dry
// run: what must deny it is the first expression of the policy, with its message. Any
// other denial, such as by RBAC, proves nothing.
//
// A [Proof] has the UID and generation of each object that it rests on. A [Keeper] keeps them
// on the hub, and since when they have been the same. So it notices that a policy was
// changed, or deleted and created, in between: what is older than that is not proven.
//
// # Concurrency
//
// A Prover may be used concurrently, a Keeper by the leader only.
//
// # Trade-offs
//
// That an API server which is not asked behaves alike is assumed, as is that nobody writes
// to the hub's etcd. Changes and Rollbacks are not proven by a dry run of their own:
// federator need not be allowed to write FleetPolicies or Rollbacks; that the same admission plugin is in
// force is proven by the Approval.
package admission
