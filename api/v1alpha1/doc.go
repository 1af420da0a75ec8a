// Package v1alpha1 is the first version of the group federator.dev. An alpha
// version may change without notice.
//
// All kinds are cluster-scoped and live on the hub. A [PolicySource] is a git
// repository with Rego packages, and a ceiling on what they are allowed to do. A
// [FleetPolicy] applies a package to members and objects, and defines whether, where
// and how fast its violations are corrected. An [Action] is the record of one
// correction; nothing is written to a member without it. A [Plan] is what a policy would
// write, frozen in [PlanPart]s, and an [Approval] a person's decision to let it pass. A
// [Rollback] is a person's request to roll back many Actions. A [Notification] sends
// transitions that the history records to another system.
//
// Objects are validated by the API server, with the schemas and CEL rules of the
// CustomResourceDefinitions that controller-gen generates from these types
// (`make generate`). Every admitted object can be decoded into them. What can only be
// validated against the policies or the fleet, such as the parameters of a package,
// is reported in status.
//
// # Approvals
//
// From a change to the last write:
//
//  1. Frozen. A new generation of a policy (package, parameters and spec) that requires
//     approval is evaluated completely; nothing of it is written. The leader records a Plan
//     in state Freezing, then its parts, owned by it, then state Waiting. Name and hash
//     follow from the content: two leaders, or two attempts, make the same Plan. A halt, a
//     bulk rollback and a policy in mode DryRun make a Plan in the same way; more than
//     [MaxPlanTargets] is refused, visibly. A generation of no targets has a Plan, too: a
//     change that lowers spec.approval passes by it, under the requirement before it.
//  2. Shown. Everybody who may read Plans sees the counts by member, kind and verb. The parts
//     name objects of members and show some of their content, so federator alone reads
//     them: any replica serves them within the grants of the caller. That is why parts
//     are a kind of their own, and why a list of Plans stays small.
//  3. Approved. People create Approvals that name the hash, or the id of the halt. Admission on
//     the hub binds spec.by and spec.groups to who creates it and asks RBAC for the verb approve.
//     At use federator asks again, and counts distinct users of the required groups, without
//     the authors. While it cannot prove that admission does so, no Approval counts, nor does one
//     that is older than the proof. What counts is recorded in PolicyState before the first
//     write.
//  4. Written. Each target of an approved Plan may be written once: the same member UID, object,
//     UID, verb and remedy. Limits, waves, windows and stops hold as ever; only a Plan of a
//     halt raises limits, those that it names. Each use is an Action that names the Plan and
//     the Approvals; such Actions stay until the last of these expires. The same change of an
//     approved target, under the same generation, is drift: it goes on within the limits,
//     whatever the object's UID.
//  5. Amended. What comes to violate the policy after a Plan was frozen is gathered, and waits
//     as an Amendment of it, at most one at a time. A new generation supersedes all of them.
//
// An Approval ends when it expires, after spec.approval.validFor, or when it is deleted. A
// requirement that was in force is kept in PolicyState: deleting and creating the FleetPolicy
// does not lower it. Two requirements, of the policy and of its source's ceiling or of an
// earlier generation, must both be met.
//
// # Concurrency
//
// Values are plain data: safe for concurrent reads, but not for a write concurrent
// with other uses. DeepCopy returns a copy.
//
// # Trade-offs
//
// Patches are JSON in a string, so that their hash is that of the bytes that were
// written. So are the targets of a PlanPart, because a rule that holds a list of that size
// immutable would cost more than the API server allows. Percentages are whole numbers; use counts for smaller limits.
//
// +kubebuilder:object:generate=true
// +groupName=federator.dev
package v1alpha1
