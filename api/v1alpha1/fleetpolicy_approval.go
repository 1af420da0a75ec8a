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
