package api

// GroupName is the API group of federator's kinds.
const GroupName = "federator.dev"

// Labels and annotations, each key in the group. Which of them is set where is
// part of the API: programs may rely on it.
const (
	// MemberKey is the annotation with the member that an object was read from, as
	// <namespace>/<name> of its Cluster. A label could not contain the slash.
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

	// ProtectKey is the annotation, valued ProtectValue, that protects an object on a
	// member: federator never writes to it.
	ProtectKey = GroupName + "/protect"

	// FreezeKey is the annotation on a Cluster of the hub with the time, as in RFC 3339,
	// until which nothing is written to its member. It is at most 30 days ahead. A value
	// that is not such a time prevents writes until it is changed.
	FreezeKey = GroupName + "/freeze-until"

	// StopKey is the label on a ConfigMap in federator's namespace that stops actions: all,
	// or those of a policy, a member or a source. Its value is the scope; what counts are
	// the data's scope and name.
	StopKey = GroupName + "/stop"

	// AcknowledgeKey is the annotation on a FleetPolicy that acknowledges a halt, so
	// that corrections continue. Its value is the status.halted.id of that halt; it
	// does not acknowledge later halts.
	AcknowledgeKey = GroupName + "/acknowledge"

	// ChangedByKey is the annotation on a FleetPolicy with the name of the user who changed
	// its spec last, set by that user with the change. The chart's admission policies hold
	// it to be their own name, or absent. The user named there does not count as an
	// approver of the change.
	ChangedByKey = GroupName + "/changed-by"

	// SyncKey is the annotation on a PolicySource that triggers a check of the
	// repository whenever its value changes; use the current time, for example.
	// status.lastSync is the last observed value.
	SyncKey = GroupName + "/sync"

	// PruneKey is the annotation on a PolicySource that allows one commit, whose
	// full hash is the value, to delete more FleetPolicies than spec.maxPrune.
	PruneKey = GroupName + "/allow-prune"

	// RollbackKey is the label on an Action that requests its rollback: RollbackValue,
	// or RollbackForce to roll back even if the target has changed since. It is a
	// label, so that requests can be watched without all other Actions. It is removed
	// when the request has been handled.
	RollbackKey = GroupName + "/rollback"

	// RollbackReasonKey is the annotation on an Action with the reason for the
	// requested rollback.
	RollbackReasonKey = GroupName + "/rollback-reason"

	// RollbackOutcomeKey is the annotation on an Action with the outcome of the last
	// rollback request: "Succeeded" and the name of the Action that rolled it back, or
	// another phase and the reason.
	RollbackOutcomeKey = GroupName + "/rollback-outcome"

	// PolicyKey is the label on an Action with the name of its FleetPolicy.
	PolicyKey = GroupName + "/policy"

	// SourceKey is the label on a FleetPolicy with the name of the PolicySource
	// that applied it, and may prune it.
	SourceKey = GroupName + "/source"
)

// Values of the labels and annotations above that are switches.
const (
	RedactedValue = "true"
	ProtectValue  = "true"

	RollbackValue = "true"
	RollbackForce = "force"
)
