package api

// GroupName is the API group of federator's kinds.
const GroupName = "federator.dev"

// Labels and annotations, each key in the group. Which of them is set where is
// part of the API: programs may rely on it.
const (
	// MemberKey names the member that an object was read from, as
	// <namespace>/<name> of its Cluster. It is an annotation, since a label's
	// value must not hold a slash.
	MemberKey = GroupName + "/member"

	// ResourceVersionKey is the annotation with the object's resourceVersion in
	// its own cluster, on objects whose metadata.resourceVersion is the
	// revision of the fleet.
	ResourceVersionKey = GroupName + "/resource-version"

	// OriginalNamespaceKey and OriginalNameKey are the annotations with the namespace,
	// or the name of a cluster-scoped object, as its own cluster has it, on objects
	// that are read under /flat.
	OriginalNamespaceKey = GroupName + "/original-namespace"
	OriginalNameKey      = GroupName + "/original-name"

	// RedactedKey is the annotation, valued RedactedValue, on Secrets and
	// ConfigMaps whose values were replaced by "". Their keys are kept.
	RedactedKey = GroupName + "/redacted"

	// ActionKey is the annotation on an object that federator has written, with
	// the name of the Action that recorded the intent.
	ActionKey = GroupName + "/action"

	// ProtectKey is the annotation, valued ProtectValue, with which the owner of
	// an object asks federator never to write it.
	ProtectKey = GroupName + "/protect"

	// AcknowledgeKey is the annotation on a FleetPolicy that lets it go on after
	// a halt. Its value is the status.halted.id that somebody has looked at, so
	// that it says nothing about later halts.
	AcknowledgeKey = GroupName + "/acknowledge"

	// SyncKey is the annotation on a PolicySource that asks for a look at the
	// repository now, whenever its value changes; a time serves. The status
	// repeats the value that was last seen.
	SyncKey = GroupName + "/sync"

	// PruneKey is the annotation on a PolicySource that allows one commit, whose
	// full hash is the value, to delete more FleetPolicies than spec.maxPrune.
	PruneKey = GroupName + "/allow-prune"

	// RollbackKey is the label on an Action that asks whoever acts to take it back:
	// RollbackValue, or RollbackForce to do so where the target has changed since. It
	// is a label, so that requests can be watched without all other Actions. It is
	// removed with the answer.
	RollbackKey = GroupName + "/rollback"

	// RollbackReasonKey is the annotation on an Action that says why it is to be
	// taken back.
	RollbackReasonKey = GroupName + "/rollback-reason"

	// RollbackOutcomeKey is the annotation on an Action with what came of the last
	// request to take it back: "Succeeded" and the name of the Action that did, or
	// another word and why not.
	RollbackOutcomeKey = GroupName + "/rollback-outcome"

	// PolicyKey is the label on an Action with the name of its FleetPolicy.
	PolicyKey = GroupName + "/policy"

	// SourceKey is the label on a FleetPolicy with the name of the PolicySource
	// that applied it, and may prune it.
	SourceKey = GroupName + "/source"
)

// Values of annotations that are switches.
const (
	RedactedValue = "true"
	ProtectValue  = "true"

	RollbackValue = "true"
	RollbackForce = "force"
)
