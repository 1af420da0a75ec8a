package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Approval is a person's decision to let pass what federator would not do
// without it. To create one, RBAC must allow the verb approve on the
// FleetPolicy or PolicySource that it names, besides create on approvals. It
// counts if federator can prove that the hub has checked who created it.
// Deleting an Approval withdraws it; what was written stays written.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=federator
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.fleetPolicy`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.policySource`
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.spec.by`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Halt",type=string,priority=1,JSONPath=`.spec.halt`
// +kubebuilder:printcolumn:name="Plan",type=string,priority=1,JSONPath=`.spec.plan`
// +kubebuilder:printcolumn:name="Rollback",type=string,priority=1,JSONPath=`.spec.rollback`
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.spec.commit`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:selectablefield:JSONPath=`.spec.fleetPolicy`
// +kubebuilder:selectablefield:JSONPath=`.spec.policySource`
// +kubebuilder:selectablefield:JSONPath=`.spec.by`
type Approval struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what is approved, by whom and why. It is immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: create another Approval"
	Spec ApprovalSpec `json:"spec"`

	// status is whether the Approval counts. It is written by federator and is
	// read-only for users.
	// +optional
	Status ApprovalStatus `json:"status,omitzero"`
}

// ApprovalList is a list of Approvals.
//
// +kubebuilder:object:root=true
type ApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Approval `json:"items"`
}

// ApprovalSpec is what is approved, by whom and why. It is immutable.
// +kubebuilder:validation:XValidation:rule="has(self.fleetPolicy) != has(self.policySource)",message="exactly one of fleetPolicy and policySource must be set"
// +kubebuilder:validation:XValidation:rule="[has(self.halt), has(self.plan), has(self.rollback), has(self.commit), has(self.version)].filter(x, x).size() == 1",message="exactly one of halt, plan, rollback, commit and version must be set"
// +kubebuilder:validation:XValidation:rule="has(self.commit) == has(self.policySource)",message="commit must be set for a PolicySource, and must not be set for a FleetPolicy"
type ApprovalSpec struct {
	// fleetPolicy is the name of the FleetPolicy.
	// +optional
	FleetPolicy PolicyName `json:"fleetPolicy,omitempty"`

	// policySource is the name of the PolicySource.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	PolicySource string `json:"policySource,omitempty"`

	// halt is the id of a halt, as in status.halted.id of the FleetPolicy. The
	// limits that the halt names are raised, for the targets that waited then,
	// once for each.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Halt string `json:"halt,omitempty"`

	// plan is the hash of a Plan of a new generation or of an amendment. Its
	// targets are written, once each, within all limits.
	// +optional
	Plan Digest `json:"plan,omitempty"`

	// rollback is the hash of a Plan of a rollback.
	// +optional
	Rollback Digest `json:"rollback,omitempty"`

	// version is the digest of a version in shadow, as in
	// status.rollout.candidate.digest of the FleetPolicy: its shadow ends now. Of one
	// with other parameters that was taken back it lets it begin again, in shadow.
	// +optional
	Version Digest `json:"version,omitempty"`

	// commit is the full hash of a commit that changes more verdicts than
	// spec.maxDiff of the PolicySource, or of one in shadow, which ends now: that takes
	// an Approval that was created since its rollout began.
	// spec.ceiling.approval of the PolicySource defines who must approve it; without
	// that, one person.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// reason is why this is approved.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('[^[:space:]]')",message="reason must not be blank"
	Reason string `json:"reason"`

	// expires is the time from which the Approval no longer counts, in RFC 3339
	// format. spec.approval.validFor of the FleetPolicy may end it earlier.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Expires metav1.Time `json:"expires"`

	// by is who approves: the name of the user who creates the Approval, as
	// `kubectl auth whoami` shows it.
	// +required
	By UserName `json:"by"`

	// groups are the groups of that user that matter: those that spec.approval of
	// the FleetPolicy requires, and those by which RBAC grants the user the verb
	// approve. The hub must know the user to be in each of them. At most 50 groups
	// are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Groups []GroupName `json:"groups,omitempty"`
}

// ApprovalState is whether an Approval counts.
// +kubebuilder:validation:Enum=Counts;Ignored;Expired
type ApprovalState string

// The states of Approvals.
const (
	ApprovalCounts  ApprovalState = "Counts"  // towards what it names
	ApprovalIgnored ApprovalState = "Ignored" // the reason says why
	ApprovalExpired ApprovalState = "Expired"
)

// ApprovalStatus is whether an Approval counts.
type ApprovalStatus struct {
	// state is whether the Approval counts. Valid values are:
	//
	// - Counts: it counts towards what it names.
	// - Ignored: it does not count; reason and message say why.
	// - Expired: it counted until it expired.
	//
	// It is not set until federator has seen the Approval.
	// +optional
	State ApprovalState `json:"state,omitempty"`

	// reason is why the Approval is ignored, in CamelCase. Known reasons are:
	//
	// - Unproven: federator cannot prove that the hub checks who creates Approvals,
	//   or could not when this one was created.
	// - NotAllowed: RBAC does not grant the user, in spec.groups, the verb approve.
	// - NotInGroup: the user is in none of the required groups.
	// - ServiceAccount: the service account is not one that counts.
	// - Author: the user is an author of what is approved.
	// - Unknown: there is no such halt, plan or commit, or it has ended.
	// - Repeated: another Approval of the same user counts.
	// - Withdrawn: the Approval is being deleted.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// message is a human-readable explanation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// used is the number of targets that were written with it. It is updated at
	// most once in 10 seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Used int32 `json:"used,omitempty"`
}
