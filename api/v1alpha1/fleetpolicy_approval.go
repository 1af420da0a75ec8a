package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ApprovalRequirement defines who must approve what a policy would write. An
// Approval counts only if the person may approve the policy: RBAC grants the
// verb approve on fleetpolicies. The author of the change does not count; if
// federator cannot prove who that is, one person more is required.
type ApprovalRequirement struct {
	// required is the number of distinct people who must approve. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Required int32 `json:"required,omitempty"`

	// groups are the groups whose members count. If empty, everybody counts who may
	// approve the policy. At most 20 groups are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	Groups []GroupName `json:"groups,omitempty"`

	// serviceAccounts are the service accounts that count, as
	// system:serviceaccount:<namespace>:<name>. They need not be in one of the
	// groups. Other service accounts do not count. At most 20 are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	ServiceAccounts []ServiceAccountName `json:"serviceAccounts,omitempty"`

	// above is the share of the subjects, as a percentage between 1 and 100, that
	// may be changed without approval within spec.limits.window. A plan needs
	// approval if more objects than that would be changed with it. If unset, every
	// new generation of the policy needs approval.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Above *int32 `json:"above,omitempty"`

	// validFor is how long an Approval counts after it was created, unless it
	// expires earlier. It is a duration between 1m and 720h. Defaults to 24h.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="validFor must be between 1m and 720h"
	ValidFor *metav1.Duration `json:"validFor,omitempty"`
}

// GroupName is the name of a group of users, as the hub authenticates them.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="!(self in ['system:authenticated', 'system:unauthenticated', 'system:serviceaccounts'])",message="a group of everybody, or of all service accounts, restricts nothing: omit it"
type GroupName string

// ServiceAccountName is the user name of a service account.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^system:serviceaccount:[a-z0-9]([-a-z0-9]*[a-z0-9])?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="a service account must be written as system:serviceaccount:<namespace>:<name>"
type ServiceAccountName string

// OptOut defines whether annotations on objects protect them from a policy.
// +kubebuilder:validation:Enum=Honor;None
type OptOut string

// Values of OptOut.
const (
	HonorOptOut  OptOut = "Honor" // objects with the annotation federator.dev/protect are not written
	IgnoreOptOut OptOut = "None"  // the annotation is ignored
)

// GitOps defines what happens with objects that a GitOps controller manages.
// +kubebuilder:validation:Enum=Respect;Override
type GitOps string

// Values of GitOps.
const (
	RespectGitOps  GitOps = "Respect"  // they are not written
	OverrideGitOps GitOps = "Override" // they are written like others
)

// ApprovalProgress is what of a policy waits for Approvals, and what has them.
type ApprovalProgress struct {
	// required is the number of people who must approve: that of the spec, or of an
	// earlier spec or the source's ceiling if they require more, and one more while
	// the author is not proven.
	// +required
	// +kubebuilder:validation:Minimum=0
	Required int32 `json:"required"`

	// authors are the users who have changed the policy since a generation of it
	// was last approved. Their Approvals do not count. At most 20 are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Authors []UserName `json:"authors,omitempty"`

	// unproven explains why federator cannot prove who creates Approvals. While it
	// is set, nothing that requires approval is written.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Unproven string `json:"unproven,omitempty"`

	// plans are the Plans that wait for Approvals, and those that may be written
	// because of them. At most 10 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Plans []PlanProgress `json:"plans,omitempty"`
}

// PlanProgress is a Plan that waits for Approvals or has them.
type PlanProgress struct {
	// name is the name of the Plan.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// hash is the hash of the Plan, which an Approval names.
	// +required
	Hash Digest `json:"hash"`

	// purpose is what the Plan is for.
	// +required
	Purpose PlanPurpose `json:"purpose"`

	// state is how far the Plan has come.
	// +required
	State PlanState `json:"state"`

	// targets is the number of targets.
	// +required
	// +kubebuilder:validation:Minimum=0
	Targets int32 `json:"targets"`

	// since is the time at which the Plan was frozen.
	// +required
	Since metav1.Time `json:"since"`

	// approvals are the Approvals that count: who has approved, and until when.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Approvals []GivenApproval `json:"approvals,omitempty"`
}
