package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Rollback rolls back what a FleetPolicy has written: its Actions of a time span,
// of a commit, or both. What is rolled back is frozen as one Plan before
// anything is written, once the policy does not write the same again: it is
// suspended, stopped, halted, deleted, or was changed. Where the policy requires
// approval, the Plan waits for it. To create a Rollback, RBAC must allow the verb
// rollback on the FleetPolicy, besides create on rollbacks, and federator must be
// able to prove that the hub checks this. Deleting a Rollback ends it; what was
// rolled back stays rolled back.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=federator
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Planned",type=integer,JSONPath=`.status.planned`
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.done`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="Refused",type=integer,JSONPath=`.status.refused`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Since",type=string,priority=1,JSONPath=`.spec.since`
// +kubebuilder:printcolumn:name="Until",type=string,priority=1,JSONPath=`.spec.until`
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.spec.commit`
// +kubebuilder:printcolumn:name="Plan",type=string,priority=1,JSONPath=`.status.plan`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:selectablefield:JSONPath=`.spec.policy`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
type Rollback struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is rolled back, who wants it and why. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: create another Rollback"
	Spec RollbackSpec `json:"spec"`

	// status is how far the Rollback has come. It is written by federator and is
	// read-only for users.
	// +optional
	Status RollbackStatus `json:"status,omitzero"`
}

// RollbackList is a list of Rollbacks.
//
// +kubebuilder:object:root=true
type RollbackList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Rollback `json:"items"`
}

// RollbackSpec selects the Actions to roll back: those that match all the fields
// that are set. It is immutable.
// +kubebuilder:validation:XValidation:rule="has(self.commit) || has(self.since)",message="commit or since must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.since) || !has(self.until) || self.since < self.until",message="until must be after since"
type RollbackSpec struct {
	// policy is the name of the FleetPolicy whose Actions are rolled back. It need
	// not exist any more.
	// +required
	Policy PolicyName `json:"policy"`

	// commit selects what was written with this commit of the package: its full
	// hash.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// since selects what was written at or after this time, in RFC 3339 format.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Since *metav1.Time `json:"since,omitempty"`

	// until selects what was written before this time, in RFC 3339 format. What the
	// policy has written later stays, and so do earlier Actions of the same targets.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Until *metav1.Time `json:"until,omitempty"`

	// whileStopped lets the Rollback write although writes are stopped. Members
	// that are paused or frozen, and what is protected, are not written in any case.
	// +optional
	WhileStopped bool `json:"whileStopped,omitempty"`

	// force rolls back targets that have changed since, too, and takes over fields
	// that are owned by other field managers.
	// +optional
	Force bool `json:"force,omitempty"`

	// reason is why.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('[^[:space:]]')",message="reason must not be blank"
	Reason string `json:"reason"`

	// by is who wants it: the name of the user who creates the Rollback, as
	// `kubectl auth whoami` shows it.
	// +required
	By UserName `json:"by"`

	// groups are the groups of that user by which RBAC grants the verb rollback. The
	// hub must know the user to be in each of them. At most 50 groups are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Groups []GroupName `json:"groups,omitempty"`
}

// RollbackState is how far a Rollback has come.
// +kubebuilder:validation:Enum=Waiting;Running;Done;Refused;Expired
type RollbackState string

// The states of Rollbacks.
const (
	RollbackWaiting RollbackState = "Waiting" // nothing is written now; the reason says why
	RollbackRunning RollbackState = "Running"
	RollbackDone    RollbackState = "Done"    // each target is rolled back, or will not be
	RollbackRefused RollbackState = "Refused" // nothing more is written
	RollbackExpired RollbackState = "Expired" // it did not end in time
)

// IsFinal reports whether a Rollback leaves the state no more.
func (s RollbackState) IsFinal() bool {
	return s == RollbackDone || s == RollbackRefused || s == RollbackExpired
}

// RollbackStatus is how far a Rollback has come.
type RollbackStatus struct {
	// state is how far the Rollback has come. Valid values are:
	//
	// - Waiting: nothing is written now; reason and message say why.
	// - Running: targets are being rolled back.
	// - Done: each target of the Plan is done, failed or refused.
	// - Refused: the Rollback must not be carried out; nothing more is written.
	// - Expired: 24 hours have passed, or the Approvals of the Plan have ended,
	//   before it was done.
	//
	// It is not set until federator has seen the Rollback.
	// +optional
	State RollbackState `json:"state,omitempty"`

	// reason is why, in CamelCase. Known reasons are:
	//
	// - Unproven: federator cannot prove that the hub checks who creates Rollbacks,
	//   or could not when this one was created.
	// - NotAllowed: RBAC does not grant the user, in spec.groups, the verb rollback.
	// - PolicyEnforces: the policy would write the same again.
	// - Stopped: writes are stopped, or it is not known whether they are.
	// - Unsettled: some of the Actions are still being written, or members are not
	//   known yet.
	// - Approval: the Plan waits for Approvals.
	// - TooManyTargets: more than 100000 targets would be rolled back.
	// - Failed: the hub did not answer as it should; federator tries again.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// message is a human-readable explanation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is the time at which the Rollback entered the state.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// plan is the name of the Plan. It is not set before it is frozen, and where
	// there is nothing to roll back.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Plan string `json:"plan,omitempty"`

	// planned is the number of targets of the Plan.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Planned int32 `json:"planned"`

	// done is the number of targets that were rolled back. It is updated at most
	// once in 10 seconds, as failed, refused and outcomes are.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Done int32 `json:"done"`

	// failed is the number of targets that their member did not let roll back.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`

	// refused is the number of targets that federator did not roll back: they have
	// changed since, are protected, and so on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Refused int32 `json:"refused"`

	// leftOut is the number of Actions that were selected and are not in the Plan.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LeftOut int32 `json:"leftOut,omitempty"`

	// irreversible is the number of targets that cannot be restored, or not in full:
	// those of the Plan of which something is lost, and Actions without an inverse.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Irreversible int32 `json:"irreversible,omitempty"`

	// outcomes say why targets failed or were refused, and why Actions were left
	// out. At most 20 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Outcomes []RollbackOutcome `json:"outcomes,omitempty"`

	// conditions are Permitted (the user may, and this is proven) and Complete (the
	// Rollback is done).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=10
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RollbackResult is what has become of an Action that was selected.
// +kubebuilder:validation:Enum=LeftOut;Refused;Failed
type RollbackResult string

// What has become of Actions that were not rolled back.
const (
	ResultLeftOut RollbackResult = "LeftOut" // it is not in the Plan
	ResultRefused RollbackResult = "Refused" // federator did not roll it back
	ResultFailed  RollbackResult = "Failed"  // its member did not let it be rolled back
)

// RollbackOutcome says why Actions were not rolled back.
type RollbackOutcome struct {
	// result is LeftOut, Refused or Failed.
	// +required
	Result RollbackResult `json:"result"`

	// reason is why, in CamelCase. Known reasons are RolledBack, Overwritten,
	// Reverted, Irreversible, InDoubt, MemberGone and NotNamed of what was left
	// out; Changed, Irreversible, Gone, MemberGone, Protected, Managed and NoOp of
	// what was refused; and the phases of Actions of what failed.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`

	// targets is how many there are; of what was left out, how many Actions.
	// +required
	// +kubebuilder:validation:Minimum=1
	Targets int32 `json:"targets"`

	// action is the name of one of the Actions.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Action string `json:"action,omitempty"`

	// message explains that one.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}
