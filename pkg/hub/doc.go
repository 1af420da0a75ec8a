// Package hub reads and writes the hub's own objects, those of the group
// federator.dev: what people want there, and what has come of it.
//
// Sources makes PolicySources what package policysource follows, applies the
// FleetPolicies that their repositories bring, and writes their status.
// FleetPolicies makes FleetPolicies bindings of the policy engine and terms of
// corrections, and writes their status. Sources is the Library of FleetPolicies.
// Stop stops all corrections while a ConfigMap says so, and Rollbacks takes Actions
// back whose label asks for it. Events tells in Events what comes of FleetPolicies and
// PolicySources, and Reports writes what policies find as OpenReports.
//
// # What git may do
//
// A repository brings FleetPolicies, for its own packages, and nothing else: a
// manifest of another kind, of a FleetPolicy for another source, or with labels and
// annotations of federator.dev refuses all manifests of its commit. So does one that
// the hub does not admit. What was applied before stays then, observed and not
// enforced, and Current says why. Nothing may come of a commit's policies before its
// FleetPolicies are on the hub.
//
// FleetPolicies are applied without force: a field that somebody else has set stays
// theirs, and a name that is taken stays taken. Those that a commit no longer has are
// deleted, if the source applied them, and if they are no more than spec.maxPrune.
// Deleting a PolicySource deletes none: they stay, without a package and without
// effect.
//
// # The stop
//
// Each process follows ConfigMap federator-stop: as long as it exists, or as long as it
// cannot be read, the Dispatcher of this process writes nothing. Reading it anew after a
// watch has ended changes nothing that is known. A connection that has gone silent
// without an error delays a stop; it keeps the lease from being renewed, too, and
// without the lease nothing is written.
//
// # Concurrency
//
// Run of each type owns its goroutines and joins them. All other methods are safe for
// concurrent use and do not block. Only the process that leads writes to the hub, but
// for status.lastPush of a PolicySource: a webhook tells one process, which so tells all.
//
// # Trade-offs
//
// All requests of Run are made one after another: a hub that is slow delays what it is
// told, and nothing else. Secrets are read by name, with get and watch: list is not
// needed. FleetPolicies are compared by a dry run of each, which costs a request for
// each of them whenever the commit, the PolicySource or one of them changes.
package hub
