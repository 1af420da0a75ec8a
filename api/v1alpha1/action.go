package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Action is the record of one correction of an object on a member. It is
// created before the object is written and contains what is needed to roll the
// correction back. The name of an Action is derived from the correction and
// from the resourceVersion of the target that was evaluated, so that a
// correction is never carried out twice.
//
// The target has the annotation federator.dev/action with the name of the
// Action that wrote it last. Values of Secrets are not recorded, nor those of
// ConfigMaps unless keepSecretValues is configured.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=federator
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.binding`
// +kubebuilder:printcolumn:name="Member",type=string,JSONPath=`.spec.target.member`
// +kubebuilder:printcolumn:name="Verb",type=string,JSONPath=`.spec.verb`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.target.namespace`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.target.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Attempts",type=integer,priority=1,JSONPath=`.status.attempts`
// +kubebuilder:printcolumn:name="Violation",type=string,priority=1,JSONPath=`.spec.violation`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.spec.origin.commit`
// +kubebuilder:printcolumn:name="Target UID",type=string,priority=1,JSONPath=`.spec.target.uid`
// +kubebuilder:printcolumn:name="Subject",type=string,priority=1,JSONPath=`.spec.subject`
// +kubebuilder:printcolumn:name="Generation",type=string,priority=1,JSONPath=`.spec.generation`
// +kubebuilder:printcolumn:name="Wave",type=integer,priority=1,JSONPath=`.spec.wave`
// +kubebuilder:printcolumn:name="Rollback Of",type=string,priority=1,JSONPath=`.spec.rollbackOf`
// +kubebuilder:printcolumn:name="Started",type=string,priority=1,JSONPath=`.status.startedAt`
// +kubebuilder:printcolumn:name="Ended",type=string,priority=1,JSONPath=`.status.endedAt`
// +kubebuilder:printcolumn:name="Written Version",type=string,priority=1,JSONPath=`.status.resourceVersion`
// +kubebuilder:selectablefield:JSONPath=`.spec.binding`
// +kubebuilder:selectablefield:JSONPath=`.spec.target.member`
// +kubebuilder:selectablefield:JSONPath=`.spec.target.kind`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:validation:XValidation:rule="has(oldSelf.inverse) == has(self.inverse) && (!has(self.inverse) || self.inverse == oldSelf.inverse)",message="inverse is immutable"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status cannot be removed"
// +kubebuilder:validation:XValidation:rule="!(self.spec.target.kind == 'Secret' || self.spec.target.kind == 'ConfigMap' && !(has(self.spec.valuesKept) && self.spec.valuesKept)) || (!has(self.spec.patch) || !self.spec.patch.matches('\"(string|binary)?[dD]ata\"|/(string|binary)?[dD]ata')) && (!has(self.inverse) || !has(self.inverse.patch) || !self.inverse.patch.matches('\"(string|binary)?[dD]ata\"|/(string|binary)?[dD]ata'))",message="values of Secrets and ConfigMaps must not be recorded: omit patch and set patchHash only"
type Action struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines what is written, and why. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: an Action is a record"
	Spec ActionSpec `json:"spec"`

	// inverse restores the target to its previous content. It is determined before
	// the write and is immutable.
	// +optional
	Inverse *Inverse `json:"inverse,omitempty"`

	// status is the most recently observed status of the Action. It is written by
	// federator and is read-only for users. An Action without a status has not
	// been written yet.
	// +optional
	Status ActionStatus `json:"status,omitzero"`
}

// ActionList is a list of Actions.
//
// +kubebuilder:object:root=true
type ActionList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Action `json:"items"`
}

// Digest is a SHA-256 digest in hexadecimal.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
type Digest string

// JSONText is JSON in a string, at most 256 KiB.
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=262144
type JSONText string

// ActionSpec defines what is written, and why. It is immutable.
// +kubebuilder:validation:XValidation:rule="self.verb == 'delete' ? !has(self.patch) && !has(self.patchHash) : has(self.patchHash)",message="patchHash must be set if verb is apply or patch; patch and patchHash must not be set if verb is delete"
// +kubebuilder:validation:XValidation:rule="self.verb == 'delete' || has(self.patch) || self.target.kind == 'Secret' || self.target.kind == 'ConfigMap'",message="patch must be set if verb is apply or patch; it may be omitted only for a Secret or a ConfigMap"
// +kubebuilder:validation:XValidation:rule="self.verb == 'patch' ? has(self.patchType) : !has(self.patchType)",message="patchType must be set if verb is patch, and must not be set otherwise"
// +kubebuilder:validation:XValidation:rule="self.verb == 'delete' || !has(self.propagationPolicy)",message="propagationPolicy may be set only if verb is delete"
// +kubebuilder:validation:XValidation:rule="self.verb == 'apply' || has(self.target.uid)",message="target.uid and target.resourceVersion must be set if verb is patch or delete"
type ActionSpec struct {
	// binding is the name of the FleetPolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Binding string `json:"binding"`

	// package is the name of the Rego package that reported the violation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Package string `json:"package"`

	// violation is the message of the violation that this Action corrects.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Violation string `json:"violation,omitempty"`

	// origin is where the Rego package was read from.
	// +optional
	Origin Origin `json:"origin,omitzero"`

	// version is the start of the digest of the policy's version that reported the
	// violation, as in status.versions of the FleetPolicy.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]+$`
	Version string `json:"version,omitempty"`

	// revision is the revision of the index at which the violation was found.
	// +required
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	Revision string `json:"revision"`

	// subject is what violates the policy, if that is not the target: an object as
	// "member kind namespace/name", a member, or a key of a view.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject,omitempty"`

	// target is the object to write.
	// +required
	Target Target `json:"target"`

	// verb is how the target is changed. Valid values are:
	//
	// - apply: server-side apply; the target is created if it does not exist.
	// - patch: the target is patched.
	// - delete: the target is deleted.
	// +required
	Verb Verb `json:"verb"`

	// patch is the object to apply or the patch to send, as JSON. It is not set if
	// verb is delete, and may be omitted for a Secret or a ConfigMap.
	// +optional
	Patch JSONText `json:"patch,omitempty"`

	// patchType is the format of the patch: JSON for a JSON patch (RFC 6902) or
	// Merge for a JSON merge patch (RFC 7386). It is set only if verb is patch.
	// +optional
	// +kubebuilder:validation:Enum=JSON;Merge
	PatchType PatchType `json:"patchType,omitempty"`

	// valuesKept says that values of ConfigMaps are kept on this hub, so that patch
	// and inverse may have them. Those of Secrets are never recorded.
	// +optional
	ValuesKept bool `json:"valuesKept,omitempty"`

	// patchHash is the SHA-256 digest of the patch as it is sent, also if the
	// patch is not recorded.
	// +optional
	PatchHash Digest `json:"patchHash,omitempty"`

	// propagationPolicy defines how dependents of the target are deleted:
	// Background, Foreground or Orphan. It may be set only if verb is delete.
	// Defaults to the default of the target's kind.
	// +optional
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`

	// force allows the write to take over fields that are owned by other field
	// managers.
	// +optional
	Force bool `json:"force,omitempty"`

	// actAs is the user that is impersonated on the member.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActAs string `json:"actAs,omitempty"`

	// beforeHash is the SHA-256 digest of the target's content when it was
	// evaluated. It is not set if the target did not exist.
	// +optional
	BeforeHash Digest `json:"beforeHash,omitempty"`

	// afterHash is the SHA-256 digest of the target's content as returned by the
	// dry run. It is not set if the target is deleted.
	// +optional
	AfterHash Digest `json:"afterHash,omitempty"`

	// changedHash is the SHA-256 digest of the fields that the Action sets, as
	// returned by the dry run. A rollback requires that these are unchanged.
	// +optional
	ChangedHash Digest `json:"changedHash,omitempty"`

	// generation is what the policy rolled out: it changes with its package,
	// parameters and spec.
	// +optional
	Generation RolloutGeneration `json:"generation,omitempty"`

	// wave is the position of the wave, starting at 1, as in the status of the
	// FleetPolicy. It is not set if the policy has no waves.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Wave int32 `json:"wave,omitempty"`

	// reason is why a person requested the Action. It is not set for corrections
	// of policies.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// rollbackOf is the name of the Action that this Action rolls back.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RollbackOf string `json:"rollbackOf,omitempty"`

	// traceID is the ID of the trace that the Action is part of. It is set only if
	// federator traces.
	// +optional
	TraceID TraceID `json:"traceID,omitempty"`

	// auditID is the Audit-ID of the requests that write the target, as in the audit
	// log of the member. It is not set if nothing was to be written.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z-]+$`
	AuditID string `json:"auditID,omitempty"`
}

// TraceID is the ID of an OpenTelemetry trace in hexadecimal.
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^[0-9a-f]{32}$`
type TraceID string

// PatchType is the format of a patch.
type PatchType string

// The formats of patches.
const (
	JSONPatch  PatchType = "JSON"  // RFC 6902
	MergePatch PatchType = "Merge" // RFC 7386
)

// Target is an object on a member, at the version that was evaluated.
// +kubebuilder:validation:XValidation:rule="has(self.uid) == has(self.resourceVersion)",message="uid and resourceVersion must be set together; neither is set if the target does not exist yet"
type Target struct {
	// member is the name of the member, which is the <namespace>/<name> of its
	// Cluster object.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[^/]+/[^/]+$`
	Member string `json:"member"`

	// memberUID is the UID of that Cluster object: one of the same name that was
	// created later is another member. Older Actions do not have it.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	MemberUID string `json:"memberUID,omitempty"`

	// apiVersion is the API version that the object is written in.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the object without a version, such as Deployment.apps.
	// +required
	Kind Kind `json:"kind"`

	// namespace is the namespace of the object. It is empty for a cluster-scoped
	// object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the UID of the object, a precondition of the write. It is not set if
	// the object does not exist yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid,omitempty"`

	// resourceVersion is the object's resourceVersion on the member, a
	// precondition of the write. It is not set if the object does not exist yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Inverse restores a target to its previous content, or explains why that is
// not possible.
// +kubebuilder:validation:XValidation:rule="has(self.verb) != has(self.irreversible)",message="exactly one of verb and irreversible must be set"
// +kubebuilder:validation:XValidation:rule="has(self.patch) == (has(self.verb) && self.verb != 'delete')",message="patch must be set if verb is apply or patch, and must not be set otherwise"
type Inverse struct {
	// verb is how the target is restored: apply, patch or delete. It is not set if
	// the Action is irreversible.
	// +optional
	Verb Verb `json:"verb,omitempty"`

	// patch is the object to apply or the JSON merge patch to send. It is set only
	// if verb is apply or patch.
	// +optional
	Patch JSONText `json:"patch,omitempty"`

	// irreversible explains why the Action cannot be rolled back.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Irreversible string `json:"irreversible,omitempty"`
}

// ActionPhase is the phase of an Action.
// +kubebuilder:validation:Enum=Pending;Writing;Succeeded;NoOp;Failed;Superseded;Contended;Protected;Managed;RolledBack
type ActionPhase string

// The phases of Actions.
const (
	PhasePending    ActionPhase = "Pending"    // recorded
	PhaseWriting    ActionPhase = "Writing"    // the write was started, its outcome is unknown
	PhaseSucceeded  ActionPhase = "Succeeded"  // written
	PhaseNoOp       ActionPhase = "NoOp"       // the write would have changed nothing
	PhaseFailed     ActionPhase = "Failed"     // rejected, or out of attempts
	PhaseSuperseded ActionPhase = "Superseded" // the target changed after it was evaluated
	PhaseContended  ActionPhase = "Contended"  // another field manager owns a field to be written
	PhaseProtected  ActionPhase = "Protected"  // the target is protected
	PhaseManaged    ActionPhase = "Managed"    // a GitOps controller manages the target
	PhaseRolledBack ActionPhase = "RolledBack" // written, and rolled back since
)

// ActionStatus is the observed status of an Action.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || has(self.phase)",message="phase cannot be removed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || !has(self.phase) || !(oldSelf.phase in ['Succeeded', 'NoOp', 'Superseded', 'Protected', 'RolledBack']) || self.phase == oldSelf.phase || oldSelf.phase == 'Succeeded' && self.phase == 'RolledBack'",message="phase is final: Succeeded can only change to RolledBack; NoOp, Superseded, Protected and RolledBack cannot change"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.resourceVersion) || has(self.resourceVersion) && self.resourceVersion == oldSelf.resourceVersion",message="resourceVersion is immutable once it is set"
// +kubebuilder:validation:XValidation:rule="!has(self.manager) || has(self.phase) && self.phase == 'Contended'",message="manager may be set only if phase is Contended"
type ActionStatus struct {
	// phase is the phase of the Action. Valid values are:
	//
	// - Pending: recorded, not yet written.
	// - Writing: the write has been started; its outcome is not known yet.
	// - Succeeded: written.
	// - NoOp: the write would have changed nothing.
	// - Failed: rejected, or out of attempts.
	// - Superseded: the target changed after it was evaluated.
	// - Contended: another field manager owns a field to be written.
	// - Protected: the target is protected and never written.
	// - Managed: a GitOps controller manages the target: not written, message names
	//   its object, repository and path.
	// - RolledBack: written, and rolled back since.
	// +optional
	Phase ActionPhase `json:"phase,omitempty"`

	// message is a human-readable explanation of the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// manager is the field manager that the Action conflicts with. It is set only
	// if the phase is Contended.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Manager string `json:"manager,omitempty"`

	// attempts is the number of requests that have failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// resourceVersion is the resourceVersion of the target after the write.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// acknowledgedBy is who acknowledged the halt that preceded this Action.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AcknowledgedBy string `json:"acknowledgedBy,omitempty"`

	// acknowledgedHalt is the id of the acknowledged halt that preceded this
	// Action.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AcknowledgedHalt string `json:"acknowledgedHalt,omitempty"`

	// acknowledgedAt is the time at which that halt was acknowledged.
	// +optional
	AcknowledgedAt *metav1.Time `json:"acknowledgedAt,omitempty"`

	// startedAt is the time of the first attempt.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`

	// endedAt is the time at which the Action reached its last phase.
	// +optional
	EndedAt *metav1.MicroTime `json:"endedAt,omitempty"`
}

// Ended reports whether the Action has reached a phase that federator does not leave
// without a request.
func (a *Action) Ended() bool {
	switch a.Status.Phase {
	case "", PhasePending, PhaseWriting:
		return false
	}
	return true
}
