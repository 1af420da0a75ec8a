// Package hub reconciles the hub's own objects, those of the group federator.dev.
//
// PolicySources configures package policysource from the PolicySources on the hub,
// applies the FleetPolicies in their repositories, and writes their statuses.
// FleetPolicies configures the policy engine and the corrector from the FleetPolicies on
// the hub, with PolicySources as its Library, and writes their statuses. Stop stops all
// corrections while a ConfigMap exists, and Rollbacks rolls back single Actions on
// request; package bulkrollback does so with many.
// Approvals counts who has approved Plans, halts and commits, as far as the hub proves who
// they are.
// Events records Events about FleetPolicies and PolicySources, and Reports writes
// violations as OpenReports.
//
// # What git may do
//
// A repository may contain FleetPolicies for its own packages, and no other objects: all
// manifests of a commit are rejected if one is of another kind, is a FleetPolicy for
// another source, has labels or annotations of federator.dev, or is not admitted by the
// hub. What was applied before then stays, is observed but not enforced, and Origin.Hold
// says why. A commit's policies are not enforced before its FleetPolicies are applied.
//
// FleetPolicies are applied without force: fields that another manager has set, and
// existing FleetPolicies of the same name, are not taken over. FleetPolicies that are no
// longer in a commit are deleted if the source has applied them and if they are no more
// than spec.maxPrune. Deleting a PolicySource deletes no FleetPolicies: they stay, without
// a package and without effect.
//
// # Stops
//
// Each process watches the ConfigMaps of its namespace. While there is one named
// federator-stop, or they cannot be read, the Dispatcher of the process writes nothing; others
// stop a policy, a member or a source. Listing them again after a watch has
// ended does not change the state. A connection that hangs without an error delays a
// stop; but it also keeps the Lease from being renewed, and without the Lease nothing is
// written.
//
// # Concurrency
//
// Run of each type owns its goroutines and joins them. All other methods are safe for
// concurrent use and do not block. Only the leader writes to the hub, except for
// status.lastPush of a PolicySource, by which the process that a webhook has called
// informs all others.
//
// # Trade-offs
//
// Each Run makes its requests one after another: a slow hub delays only those. Secrets
// are read by name, with get and watch; permission to list them is not needed.
// FleetPolicies are compared by a dry run of each, which costs a request for each of them
// whenever the commit, the PolicySource or one of them changes.
package hub
