package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Plan is what a policy would write, frozen so that people can approve it: each
// target with what would be done to it. The targets are in PlanParts, which
// only federator reads; `federator actions plan` shows them to users who may
// read the objects. A Plan is written by federator and is read-only for users.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=federator
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`
// +kubebuilder:printcolumn:name="Purpose",type=string,JSONPath=`.spec.purpose`
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.spec.targets`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Required",type=integer,JSONPath=`.status.required`
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.status.approvals[*].by`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Written",type=integer,priority=1,JSONPath=`.status.written`
// +kubebuilder:printcolumn:name="Generation",type=string,priority=1,JSONPath=`.spec.generation`
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.spec.origin.commit`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Hash",type=string,priority=1,JSONPath=`.spec.hash`
// +kubebuilder:selectablefield:JSONPath=`.spec.policy`
// +kubebuilder:selectablefield:JSONPath=`.spec.purpose`
// +kubebuilder:selectablefield:JSONPath=`.spec.hash`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.policy + '-' + self.spec.hash.substring(0, 16)",message="metadata.name must be the name of the policy, a dash and the first 16 characters of spec.hash"
type Plan struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what would be written, and why. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: a Plan is frozen"
	Spec PlanSpec `json:"spec"`

	// status is how far the Plan has come.
	// +optional
	Status PlanStatus `json:"status,omitzero"`
}

// PlanList is a list of Plans.
//
// +kubebuilder:object:root=true
type PlanList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Plan `json:"items"`
}

// MaxPlanTargets is the number of targets that a Plan may have: what would change more
// is refused, visibly.
const MaxPlanTargets = 100_000

// PlanPurpose is what a Plan is for.
// +kubebuilder:validation:Enum=Generation;Amendment;Halt;Rollback;DryRun
type PlanPurpose string

// The purposes of Plans.
const (
	PlanGeneration PlanPurpose = "Generation" // what a new generation of a policy would write
	PlanAmendment  PlanPurpose = "Amendment"  // what has come to violate it after a Plan was frozen
	PlanHalt       PlanPurpose = "Halt"       // what waits because of a halt
	PlanRollback   PlanPurpose = "Rollback"   // what a rollback would restore
	PlanDryRun     PlanPurpose = "DryRun"     // what a policy in mode DryRun would write
)

// PlanSpec is what would be written, and why. It is immutable.
// +kubebuilder:validation:XValidation:rule="has(self.amends) == (self.purpose == 'Amendment')",message="amends must be set if purpose is Amendment, and must not be set otherwise"
// +kubebuilder:validation:XValidation:rule="has(self.halt) == (self.purpose == 'Halt')",message="halt must be set if purpose is Halt, and must not be set otherwise"
// +kubebuilder:validation:XValidation:rule="has(self.rollback) == (self.purpose == 'Rollback')",message="rollback must be set if purpose is Rollback, and must not be set otherwise"
type PlanSpec struct {
	// policy is the name of the FleetPolicy.
	// +required
	Policy PolicyName `json:"policy"`

	// purpose is what the Plan is for. Valid values are:
	//
	// - Generation: what a new generation of the policy would write.
	// - Amendment: what has come to violate the policy after another Plan was
	//   frozen.
	// - Halt: what waits because of a halt.
	// - Rollback: what a rollback would restore.
	// - DryRun: what the policy would write, with the answers of the members.
	// +required
	Purpose PlanPurpose `json:"purpose"`

	// hash is what an Approval names: the SHA-256 digest over the policy's name,
	// the purpose with what it names, the digests and the targets.
	// +required
	Hash Digest `json:"hash"`

	// generation identifies the package, parameters and spec of the policy: the
	// first 128 bits of a SHA-256 digest, in hexadecimal.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{32}$`
	Generation string `json:"generation"`

	// digests are what the hash is computed from: they show what differs from
	// another Plan.
	// +required
	Digests PlanDigests `json:"digests"`

	// origin is where the Rego package was read from. It is not set for a package
	// that is built into federator.
	// +optional
	Origin *Origin `json:"origin,omitempty"`

	// authors are the users who have changed the policy since a generation of it
	// was last approved. Their Approvals of the Plan do not count.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	Authors []UserName `json:"authors,omitempty"`

	// authorsProven is whether these are known to be all authors. If false, one
	// person more must approve.
	// +optional
	AuthorsProven bool `json:"authorsProven,omitempty"`

	// amends is the name of the Plan that an amendment adds to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Amends string `json:"amends,omitempty"`

	// halt is the halt whose limits are raised if the Plan passes.
	// +optional
	Halt *PlannedHalt `json:"halt,omitempty"`

	// rollback is what is to be rolled back, and who wants it.
	// +optional
	Rollback *PlannedRollback `json:"rollback,omitempty"`

	// targets is the number of targets. At most 100000 are allowed.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Targets int32 `json:"targets"`

	// irreversible is the number of targets that could not be rolled back. Of a
	// rollback it is the number of those that cannot be restored in full.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Irreversible int32 `json:"irreversible,omitempty"`

	// counts are the numbers of targets by member, kind and verb, most targets
	// first. At most 1000 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Counts []PlanCount `json:"counts,omitempty"`

	// countsOmitted is the number of counts that are not listed because the list
	// is full.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CountsOmitted int32 `json:"countsOmitted,omitempty"`

	// parts is the number of PlanParts, whose names are the Plan's name, a dash and
	// a number from 1.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Parts int32 `json:"parts"`
}

// PlanDigests are SHA-256 digests of what a Plan was made from.
type PlanDigests struct {
	// package is the digest of the modules of the package, with what they import. Of
	// a rollback, package, parameters and spec are digests of nothing: what is
	// restored does not depend on them.
	// +required
	Package Digest `json:"package"`

	// parameters is the digest of the policy's parameters.
	// +required
	Parameters Digest `json:"parameters"`

	// spec is the digest of the policy's spec, without suspend.
	// +required
	Spec Digest `json:"spec"`

	// targets is the digest of all targets: the member with its UID, object, UID,
	// API version, verb and digest of the remedy of each, and whether it could be
	// rolled back, sorted.
	// +required
	Targets Digest `json:"targets"`
}

// PlannedHalt is a halt whose limits are raised if a Plan passes.
type PlannedHalt struct {
	// id is the id of the halt.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// reason is why the policy is halted.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason HaltReason `json:"reason"`

	// over are the limits that are raised to their targets, for the targets of this
	// Plan. Limits that the list does not have, because it is full, are not raised.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Over []Budget `json:"over,omitempty"`
}

// PlannedRollback selects the Actions to roll back: those that match all the
// fields that are set.
// +kubebuilder:validation:XValidation:rule="has(self.commit) || has(self.since)",message="commit or since must be set"
type PlannedRollback struct {
	// commit selects what was written with this commit of the package.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// since selects what was written at or after this time.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// until selects what was written before this time.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// name is the name of the Rollback.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// uid is the UID of the Rollback: one that is created again under the same name
	// is another.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid,omitempty"`

	// whileStopped lets it be done although writes are stopped.
	// +optional
	WhileStopped bool `json:"whileStopped,omitempty"`

	// force rolls back targets that have changed since, too.
	// +optional
	Force bool `json:"force,omitempty"`

	// by is who wants the rollback.
	// +optional
	By UserName `json:"by,omitempty"`

	// reason is why.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// PlanCount is a number of targets.
type PlanCount struct {
	// member is the name of the member, which is the <namespace>/<name> of its
	// Cluster object.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Member string `json:"member"`

	// kind is the kind of the targets.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Kind string `json:"kind"`

	// verb is how they are changed: apply, patch or delete.
	// +required
	Verb Verb `json:"verb"`

	// targets is the number of targets.
	// +required
	// +kubebuilder:validation:Minimum=1
	Targets int32 `json:"targets"`
}

// PlanState is how far a Plan has come.
// +kubebuilder:validation:Enum=Freezing;Waiting;Approved;Done;Superseded;Expired
type PlanState string

// The states of Plans.
const (
	PlanFreezing   PlanState = "Freezing"   // its parts are being recorded
	PlanWaiting    PlanState = "Waiting"    // it waits for Approvals
	PlanApproved   PlanState = "Approved"   // its targets may be written
	PlanDone       PlanState = "Done"       // each target is written or accounted for, or has the answer to its dry run
	PlanSuperseded PlanState = "Superseded" // another Plan has taken its place
	PlanExpired    PlanState = "Expired"    // its Approvals ended before everything was written
)

// PlanStatus is how far a Plan has come.
type PlanStatus struct {
	// state is how far the Plan has come. Valid values are:
	//
	// - Freezing: its parts are being recorded. It cannot be approved yet.
	// - Waiting: it waits for Approvals.
	// - Approved: its targets may be written, each once.
	// - Done: each target is written, or accounted for: protected, managed by
	//   others, exempt, or no longer a violation. Of a Plan whose purpose is DryRun,
	//   each target has its answer.
	// - Superseded: another Plan has taken its place.
	// - Expired: its Approvals ended before everything was written.
	// +optional
	State PlanState `json:"state,omitempty"`

	// message is a human-readable explanation of the state.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is the time at which the Plan entered the state.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// required is the number of people who must approve, with the one more that is
	// required while the author is not proven.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Required int32 `json:"required,omitempty"`

	// approvals are the Approvals that count.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Approvals []GivenApproval `json:"approvals,omitempty"`

	// written is the number of targets that were written. It is updated at most
	// once in 10 seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Written int32 `json:"written,omitempty"`

	// dryRun are the answers of members, if purpose is DryRun.
	// +optional
	DryRun *DryRunCounts `json:"dryRun,omitempty"`
}

// DryRunCounts are the numbers of targets of a Plan by the answers of their
// members to server-side dry runs.
type DryRunCounts struct {
	// passed is the number of targets that would be changed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Passed int32 `json:"passed"`

	// noOp is the number of targets that would not be changed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoOp int32 `json:"noOp"`

	// refused is the number of targets whose member refuses the change.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Refused int32 `json:"refused"`

	// contended is the number of targets with a field that another field manager
	// owns.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Contended int32 `json:"contended"`

	// protected is the number of targets that federator never writes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Protected int32 `json:"protected"`

	// managed is the number of targets that a GitOps controller manages.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Managed int32 `json:"managed"`

	// invalid is the number of targets whose remedy cannot be carried out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Invalid int32 `json:"invalid"`

	// superseded is the number of targets that have changed since they were
	// evaluated.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Superseded int32 `json:"superseded"`

	// unreachable is the number of targets whose member did not answer, or may not
	// be asked now.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unreachable int32 `json:"unreachable"`
}

// GivenApproval is an Approval that counts.
type GivenApproval struct {
	// name is the name of the Approval.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// by is who approved.
	// +required
	By UserName `json:"by"`

	// at is the time at which the Approval was created.
	// +required
	At metav1.Time `json:"at"`

	// expires is the time from which the Approval no longer counts.
	// +required
	Expires metav1.Time `json:"expires"`
}

// UserName is the name of a user, as the hub authenticates it.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
type UserName string
