package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Verb is how a remedy changes an object.
// +kubebuilder:validation:Enum=apply;patch;delete
type Verb string

// The verbs.
const (
	Apply  Verb = "apply"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Ceiling limits what the policies of a source are allowed to do. It is set on
// the hub, never by the repository. A policy whose spec exceeds it is not changed
// but only observed, and its condition Enforcing names the field; single
// corrections that exceed it are not written, and are counted there.
// +kubebuilder:validation:XValidation:rule="!has(self.maxMode) || self.maxMode == 'Observe' || has(self.actions) && size(self.actions) > 0",message="actions must be set if maxMode is DryRun or Enforce"
type Ceiling struct {
	// maxMode is the highest mode that is allowed: Observe, DryRun or Enforce.
	// Defaults to Observe.
	// +optional
	// +kubebuilder:default=Observe
	MaxMode Mode `json:"maxMode,omitempty"`

	// members selects the members that the policies may write to, wherever a
	// remedy points. Defaults to all members.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// namespaces is a list of patterns for the namespaces that the policies may
	// write to, wherever a remedy points. The pattern "" matches objects that have
	// no namespace. Defaults to all namespaces. At most 100 patterns are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// actions lists the verbs and kinds that the policies may use to change
	// objects. If empty, no changes are allowed. It is required if maxMode is not
	// Observe.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Actions []AllowedAction `json:"actions,omitempty"`

	// limits are the upper bounds of the limits of each policy: for each limit that
	// is set here, a policy must set its own in the same unit, not larger, and with
	// a window that is not shorter. The limits that a FleetPolicy has by default
	// count as its own. If unset, the limits of policies are not bounded.
	// +optional
	Limits *CeilingLimits `json:"limits,omitempty"`

	// window is a recurring maintenance window in which corrections may be
	// written, in addition to the window of each policy: both must be open. If
	// unset, corrections may be written at any time.
	// +optional
	Window *Window `json:"window,omitempty"`

	// waves are the waves that the corrections of every policy must pass. Members
	// that none of them selects are not corrected. Within each of them, a policy's
	// own waves apply, all of them in order: such a wave is named <wave of the
	// ceiling>/<wave of the policy>, the stricter of both health gates applies, and
	// both effect gates. If empty, only the policy's own waves apply. At most 10
	// waves are allowed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Waves []Wave `json:"waves,omitempty"`

	// approval is the approval that every policy requires, in addition to its own
	// requirement: both must be met. If unset, only the policy's own requirement
	// applies.
	// +optional
	Approval *ApprovalRequirement `json:"approval,omitempty"`

	// force allows policies to set spec.force. Defaults to false.
	// +optional
	Force bool `json:"force,omitempty"`

	// actAs lists the users that the policies may set in spec.actAs. The item ""
	// allows a policy to write as federator itself, without spec.actAs. If the list
	// is empty, that is all that is allowed. At most 50 users are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	ActAs []UserOrSelf `json:"actAs,omitempty"`

	// gitops is the most that is allowed in spec.gitops of the policies: Respect
	// (default) or Override.
	// +optional
	// +kubebuilder:default=Respect
	GitOps GitOps `json:"gitops,omitempty"`

	// optOut is the most that is allowed in spec.optOut of the policies: Honor
	// (default) or None.
	// +optional
	// +kubebuilder:default=Honor
	OptOut OptOut `json:"optOut,omitempty"`

	// notifications lists the Notifications that policies may name in
	// spec.notifications, or "*" for all. If empty, none. A policy that names another
	// is not held back: that Notification is not sent its transitions, and its
	// condition Notifying says so. At most 50 names are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	Notifications []string `json:"notifications,omitempty"`
}

// AllNotifications is the item of Ceiling.Notifications that allows all.
const AllNotifications = "*"

// CeilingLimits are upper bounds for the limits of the policies of a source: how
// many distinct objects each may change within a sliding time window, and how
// fast.
// +kubebuilder:validation:XValidation:rule="has(self.policy) || has(self.member) || has(self.fleet) || has(self.actionsPerMinute)",message="limits must set policy, member, fleet or actionsPerMinute"
type CeilingLimits struct {
	// window is the shortest sliding time window that the limits of a policy may
	// have. It is a duration between 1m and 720h. Defaults to 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="window must be between 1m and 720h"
	Window *metav1.Duration `json:"window,omitempty"`

	// policy bounds the number of objects that each policy changes on all members
	// together.
	// +optional
	Policy *Limit `json:"policy,omitempty"`

	// member bounds the number of objects that each policy changes on each member.
	// +optional
	Member *Limit `json:"member,omitempty"`

	// fleet bounds the number of objects that all policies together, also those of
	// other sources, change on all members.
	// +optional
	Fleet *Limit `json:"fleet,omitempty"`

	// actionsPerMinute bounds the number of corrections of each policy that are
	// written to one member per minute. If unset, the rate is not bounded.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	ActionsPerMinute *int32 `json:"actionsPerMinute,omitempty"`
}

// UserOrSelf is a user that may be impersonated on members, or "" for federator
// itself.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="!self.startsWith('system:') || self.matches('^system:serviceaccount:[a-z0-9]([-a-z0-9]*[a-z0-9])?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="the only system: users that can be impersonated are service accounts: system:serviceaccount:<namespace>:<name>"
type UserOrSelf string

// AllowedAction allows each of its verbs on each of its kinds.
type AllowedAction struct {
	// verbs are the allowed verbs: apply, patch and delete.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Verbs []Verb `json:"verbs"`

	// kinds are the allowed kinds, such as Deployment.apps, or "*" for all kinds
	// that are not protected.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="size(self) == 1 || !('*' in self)",message="'*' must be the only item: it matches all kinds"
	Kinds []KindOrAll `json:"kinds"`
}

// KindOrAll is a Kind, or "*" for all kinds.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^(\*|[A-Za-z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$`
// +kubebuilder:validation:XValidation:rule="!self.matches('^[A-Za-z0-9]+[.]v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?([.]|$)')",message="a kind must be written without its version, such as Deployment.apps"
type KindOrAll string

// AllKinds is "*".
const AllKinds KindOrAll = "*"
