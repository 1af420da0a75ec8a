package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Action is a correction on its way to a member, or done there. It is recorded
// before the write, with what takes it back. Its name is a function of the
// correction and of the version of the target that was judged, so that creating it
// twice fails: nothing is done twice.
//
// The target carries the annotation federator.dev/action with the name of the
// Action that wrote it last. Values of Secrets are not recorded.
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
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Attempts",type=integer,priority=1,JSONPath=`.status.attempts`
// +kubebuilder:printcolumn:name="Violation",type=string,priority=1,JSONPath=`.spec.violation`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.spec.origin.commit`
// +kubebuilder:selectablefield:JSONPath=`.spec.binding`
// +kubebuilder:selectablefield:JSONPath=`.spec.target.member`
// +kubebuilder:selectablefield:JSONPath=`.spec.target.kind`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:validation:XValidation:rule="has(oldSelf.inverse) == has(self.inverse) && (!has(self.inverse) || self.inverse == oldSelf.inverse)",message="the inverse of an Action cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="the status of an Action cannot be removed"
// +kubebuilder:validation:XValidation:rule="!has(self.status) || !has(self.status.phase) || self.spec.mode != 'DryRun' || !(self.status.phase in ['Writing', 'Succeeded', 'RolledBack'])",message="an Action of mode DryRun is never written"
// +kubebuilder:validation:XValidation:rule="self.spec.target.kind != 'Secret' || (!has(self.spec.patch) || !self.spec.patch.matches('\"(string)?[dD]ata\"|/(string)?[dD]ata')) && (!has(self.inverse) || !has(self.inverse.patch) || !self.inverse.patch.matches('\"(string)?[dD]ata\"|/(string)?[dD]ata'))",message="values of Secrets are not recorded: leave the patch out, patchHash says what it was"
type Action struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what is to be done, and why.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of an Action cannot be changed: it is a record"
	Spec ActionSpec `json:"spec"`

	// Inverse brings the target back to what it was. It is known before the write.
	// +optional
	Inverse *Inverse `json:"inverse,omitempty"`

	// Status is what has come of it; federator writes it. An Action without one has
	// not been written yet.
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

// ActionMode is whether an Action may be written.
// +kubebuilder:validation:Enum=DryRun;Enforce
type ActionMode string

// Digest is the SHA-256 of some bytes, in hexadecimal.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
type Digest string

// JSONText is JSON, at most 256 KiB of it.
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=262144
type JSONText string

// ActionSpec is what is to be done, and why. It cannot be changed.
// +kubebuilder:validation:XValidation:rule="self.verb == 'delete' ? !has(self.patch) && !has(self.patchHash) : has(self.patchHash)",message="apply and patch have a patchHash; delete has neither patch nor patchHash"
// +kubebuilder:validation:XValidation:rule="self.verb == 'delete' || has(self.patch) || self.target.kind == 'Secret'",message="apply and patch have a patch, which only a Secret may leave out"
// +kubebuilder:validation:XValidation:rule="self.verb == 'patch' ? has(self.patchType) : !has(self.patchType)",message="a patch has a patchType, and nothing else has"
// +kubebuilder:validation:XValidation:rule="self.verb == 'delete' || !has(self.propagationPolicy)",message="propagationPolicy is for delete"
// +kubebuilder:validation:XValidation:rule="self.verb == 'apply' || has(self.target.uid)",message="patch and delete have a target with uid and resourceVersion"
type ActionSpec struct {
	// Binding is the name of the FleetPolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Binding string `json:"binding"`

	// Package of the policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Package string `json:"package"`

	// Violation is the message that asked for it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Violation string `json:"violation,omitempty"`

	// Origin is where the policy was read.
	// +optional
	Origin Origin `json:"origin,omitzero"`

	// Revision of the index that was judged.
	// +required
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	Revision string `json:"revision"`

	// Subject is what was judged, where that is not the target: "member kind
	// namespace/name", a member, or a key of a view.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject,omitempty"`

	// Target is what is written.
	// +required
	Target Target `json:"target"`

	// Mode is DryRun or Enforce.
	// +optional
	// +kubebuilder:default=Enforce
	Mode ActionMode `json:"mode,omitempty"`

	// Verb is apply (create, if there is no target), patch or delete.
	// +required
	Verb Verb `json:"verb"`

	// Patch is the object of apply, or the patch.
	// +optional
	Patch JSONText `json:"patch,omitempty"`

	// PatchType of patch.
	// +optional
	// +kubebuilder:validation:Enum=JSON;Merge
	PatchType PatchType `json:"patchType,omitempty"`

	// PatchHash is the digest of the patch as it is sent, even where it is not
	// recorded.
	// +optional
	PatchHash Digest `json:"patchHash,omitempty"`

	// PropagationPolicy of delete; the kind's own by default.
	// +optional
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`

	// Force takes over fields of other managers.
	// +optional
	Force bool `json:"force,omitempty"`

	// ActAs is the user who is impersonated on the member.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActAs string `json:"actAs,omitempty"`

	// BeforeHash is the digest of the target's content as it was judged; there is
	// none where there was no target.
	// +optional
	BeforeHash Digest `json:"beforeHash,omitempty"`

	// AfterHash is the digest of the target's content as the dry run left it; there is
	// none where it is deleted.
	// +optional
	AfterHash Digest `json:"afterHash,omitempty"`

	// Reason is why somebody asked for it, where it was no policy.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// RollbackOf is the name of the Action that this one takes back.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RollbackOf string `json:"rollbackOf,omitempty"`
}

// PatchType is the kind of a patch.
type PatchType string

// The kinds of patches.
const (
	JSONPatch  PatchType = "JSON"  // RFC 6902
	MergePatch PatchType = "Merge" // RFC 7386
)

// Target is an object of a member, in the version that was judged.
// +kubebuilder:validation:XValidation:rule="has(self.uid) == has(self.resourceVersion)",message="a target has uid and resourceVersion, or, where it does not exist yet, neither"
type Target struct {
	// Member is <namespace>/<name> of the Cluster.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[^/]+/[^/]+$`
	Member string `json:"member"`

	// APIVersion that it is written in.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// +required
	Kind Kind `json:"kind"`

	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// UID is a precondition of the write.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid,omitempty"`

	// ResourceVersion on the member is a precondition of the write.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Inverse brings a target back to what it was, or says why nothing does.
// +kubebuilder:validation:XValidation:rule="has(self.verb) != has(self.irreversible)",message="an inverse has a verb, or says why it is irreversible"
// +kubebuilder:validation:XValidation:rule="has(self.patch) == (has(self.verb) && self.verb != 'delete')",message="the inverses apply and patch have a patch, and nothing else has"
type Inverse struct {
	// Verb is apply, patch or delete.
	// +optional
	Verb Verb `json:"verb,omitempty"`

	// Patch is the object of apply, or a merge patch.
	// +optional
	Patch JSONText `json:"patch,omitempty"`

	// Irreversible says why the action cannot be taken back.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Irreversible string `json:"irreversible,omitempty"`
}

// ActionPhase is where an Action stands.
// +kubebuilder:validation:Enum=Pending;DryRunPassed;Writing;Succeeded;NoOp;Failed;Superseded;Contended;Protected;RolledBack
type ActionPhase string

// The phases of Actions.
const (
	PhasePending      ActionPhase = "Pending"      // recorded
	PhaseDryRunPassed ActionPhase = "DryRunPassed" // it would succeed; the end in mode DryRun
	PhaseWriting      ActionPhase = "Writing"      // perhaps written
	PhaseSucceeded    ActionPhase = "Succeeded"    // written
	PhaseNoOp         ActionPhase = "NoOp"         // it would change nothing
	PhaseFailed       ActionPhase = "Failed"       // refused, or tried too often
	PhaseSuperseded   ActionPhase = "Superseded"   // the target has moved
	PhaseContended    ActionPhase = "Contended"    // another field manager owns what it would write
	PhaseProtected    ActionPhase = "Protected"    // the target is never written
	PhaseRolledBack   ActionPhase = "RolledBack"   // written, and taken back
)

// ActionStatus is what has come of an Action.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || has(self.phase)",message="the phase of an Action cannot be removed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.phase) || !has(self.phase) || !(oldSelf.phase in ['Succeeded', 'NoOp', 'Superseded', 'Protected', 'RolledBack']) || self.phase == oldSelf.phase || oldSelf.phase == 'Succeeded' && self.phase == 'RolledBack'",message="the phase is final: a Succeeded Action can only become RolledBack, and one that is NoOp, Superseded, Protected or RolledBack stays so"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.resourceVersion) || has(self.resourceVersion) && self.resourceVersion == oldSelf.resourceVersion",message="the resourceVersion that was written cannot be changed"
// +kubebuilder:validation:XValidation:rule="!has(self.manager) || has(self.phase) && self.phase == 'Contended'",message="manager is of a Contended Action"
type ActionStatus struct {
	// +optional
	Phase ActionPhase `json:"phase,omitempty"`

	// Message says why it stands there.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// Manager is the field manager that a Contended Action met.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Manager string `json:"manager,omitempty"`

	// Attempts is how many requests have failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// ResourceVersion is what the write has given the target.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ResourceVersion string `json:"resourceVersion,omitempty"`

	// AcknowledgedBy is who has acknowledged the halt that it follows.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AcknowledgedBy string `json:"acknowledgedBy,omitempty"`

	// AcknowledgedHalt is that halt's ID.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AcknowledgedHalt string `json:"acknowledgedHalt,omitempty"`

	// AcknowledgedAt is when.
	// +optional
	AcknowledgedAt *metav1.Time `json:"acknowledgedAt,omitempty"`

	// StartedAt is when it was first tried.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`

	// EndedAt is when it came to Phase, where that is an end.
	// +optional
	EndedAt *metav1.MicroTime `json:"endedAt,omitempty"`
}

// Ended reports whether nothing more comes of the Action by itself.
func (a *Action) Ended() bool {
	switch a.Status.Phase {
	case "", PhasePending, PhaseWriting:
		return false
	case PhaseDryRunPassed:
		return a.Spec.Mode == ActionMode(DryRun)
	}
	return true
}
