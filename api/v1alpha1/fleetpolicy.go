package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FleetPolicy applies a Rego package to the clusters of the fleet and defines
// what federator does with the violations that the package reports. Deleting a
// FleetPolicy stops its enforcement immediately; changes that it has already
// made are not reverted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fp,categories=federator
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.totals.violations`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.totals.unknown`
// +kubebuilder:printcolumn:name="Corrected",type=integer,JSONPath=`.status.actions.succeeded`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Package",type=string,priority=1,JSONPath=`.spec.package`
// +kubebuilder:printcolumn:name="Exempt",type=integer,priority=1,JSONPath=`.status.totals.exempt`
// +kubebuilder:printcolumn:name="Protected",type=integer,priority=1,JSONPath=`.status.totals.protected`
// +kubebuilder:printcolumn:name="Wave",type=string,priority=1,JSONPath=`.status.wave.name`
// +kubebuilder:printcolumn:name="Plans",type=string,priority=1,JSONPath=`.status.approval.plans[*].name`
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.status.origin.commit`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:selectablefield:JSONPath=`.spec.package`
// +kubebuilder:selectablefield:JSONPath=`.spec.mode`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be at most 63 characters: it is used as a label value of Actions"
type FleetPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines where the policy applies and what happens with its violations.
	// +required
	Spec FleetPolicySpec `json:"spec"`

	// status is the most recently observed status of the policy. It is written by
	// federator and is read-only for users.
	// +optional
	Status FleetPolicyStatus `json:"status,omitzero"`
}

// FleetPolicyList is a list of FleetPolicies.
//
// +kubebuilder:object:root=true
type FleetPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []FleetPolicy `json:"items"`
}

// FleetPolicySpec defines where a Rego package applies and what happens with
// its violations.
type FleetPolicySpec struct {
	// package is the name of the Rego package to evaluate, as it is written after
	// "package" in its file, such as federator.network.unique_host. It is
	// immutable: the fields that a policy manages on members are owned in the name
	// of this FleetPolicy, so another package needs another FleetPolicy.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="package is immutable: create another FleetPolicy"
	// +kubebuilder:validation:XValidation:rule="self != 'fleet' && !self.startsWith('fleet.')",message="package fleet is reserved: data.fleet holds the documents of the fleet"
	Package string `json:"package"`

	// constraint is what the policy applies, <kind>/<name>: a constraint of Gatekeeper, of package gatekeeper.<template>, or a
	// ValidatingAdmissionPolicyBinding, of package admission.<policy> with _ for - and dots. It only observes.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]*/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Constraint string `json:"constraint,omitempty"`

	// source is the name of the PolicySource that must provide the package. If
	// empty, the package may come from any PolicySource or from the policies built
	// into federator.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Source string `json:"source,omitempty"`

	// members selects the members whose objects the policy evaluates. Defaults to
	// all members.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// match selects the objects that the policy evaluates. Defaults to all objects
	// of the kinds that the package declares.
	// +optional
	Match Match `json:"match,omitzero"`

	// parameters is passed to the package as input.parameters. It must be valid
	// against the schema in the package's METADATA.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// visibility selects the members that the policy can read through data.fleet.
	// Defaults to all members.
	// +optional
	Visibility MemberSelector `json:"visibility,omitzero"`

	// unknown defines how incomplete data about members affects verdicts.
	// +optional
	// +kubebuilder:default={}
	Unknown Unknown `json:"unknown,omitzero"`

	// exemptions lists violations that are expected. Exempt violations are
	// reported as such and are not corrected. At most 100 exemptions are allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Exemptions []Exemption `json:"exemptions,omitempty"`

	// mode defines what federator does with violations. It is capped by
	// spec.ceiling.maxMode of the PolicySource that provides the package. Valid
	// values are:
	//
	// - Observe (default): violations are reported.
	// - DryRun: in addition, corrections are tried as server-side dry runs, whose
	//   answers are in a Plan; nothing is changed.
	// - Enforce: corrections are written to the members.
	// +optional
	// +kubebuilder:default=Observe
	Mode Mode `json:"mode,omitempty"`

	// force allows corrections to take over fields that are owned by other field
	// managers. If false, a correction that conflicts with another field manager
	// is not written and its Action becomes Contended. Defaults to false.
	// +optional
	Force bool `json:"force,omitempty"`

	// limits restricts how many objects corrections may change. If a limit would
	// be exceeded, the policy is halted: no more corrections are written until the
	// halt is acknowledged with the annotation federator.dev/acknowledge, whose
	// value is status.halted.id.
	// +optional
	// +kubebuilder:default={}
	Limits Limits `json:"limits,omitzero"`

	// waves divides the members into groups that are corrected in order. A wave
	// starts when the wave before it has passed its health gate and its soak time.
	// Members that no wave selects are not corrected. If empty, all members are
	// corrected at the same time. At most 20 waves are allowed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Waves []Wave `json:"waves,omitempty"`

	// rollout has another version of the policy, which is another package, import or
	// parameter, roll out instead of taking effect everywhere at once. Defaults to
	// spec.rollout of the PolicySource of the package; if that is not set either,
	// it takes effect at once.
	// +optional
	Rollout *VersionRollout `json:"rollout,omitempty"`

	// window is the recurring maintenance window in which corrections may be
	// written. If unset, corrections may be written at any time.
	// +optional
	Window *Window `json:"window,omitempty"`

	// approval requires people to approve what the policy would write, before it
	// is written. If unset, no approval is required. A requirement that was in
	// force stays in force until a change that lowers it is itself approved, also
	// if the FleetPolicy is deleted and created again.
	// +optional
	Approval *ApprovalRequirement `json:"approval,omitempty"`

	// optOut defines whether the annotation federator.dev/protect on an object of a
	// member protects it from corrections of this policy. Valid values are:
	//
	// - Honor (default): annotated objects are never written.
	// - None: the annotation is ignored. Use it where those who can annotate
	//   objects must not be able to evade the policy.
	//
	// Kinds and namespaces that federator never writes to are protected in any
	// case.
	// +optional
	// +kubebuilder:default=Honor
	OptOut OptOut `json:"optOut,omitempty"`

	// gitops defines what happens with objects that a GitOps controller manages.
	// Valid values are:
	//
	// - Respect (default): an object is not written if an Argo CD Application or a
	//   Flux Kustomization or HelmRelease that federator trusts lists it in its
	//   status. Change it in the repository that it comes from.
	// - Override: such objects are written. The controller may revert the change.
	// +optional
	// +kubebuilder:default=Respect
	GitOps GitOps `json:"gitops,omitempty"`

	// suspend stops corrections from being written. Violations are still reported.
	// Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// actAs is the user that federator impersonates on members when it writes
	// corrections of this policy, such as system:serviceaccount:platform:fixer.
	// Federator needs the permission to impersonate this user on each member. If
	// empty, federator writes as itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('system:') || self.matches('^system:serviceaccount:[a-z0-9]([-a-z0-9]*[a-z0-9])?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="the only system: users that can be impersonated are service accounts: system:serviceaccount:<namespace>:<name>"
	ActAs string `json:"actAs,omitempty"`

	// notifications are the Notifications that are sent transitions of this policy,
	// besides those whose rules select them. spec.ceiling.notifications of the
	// PolicySource that provides the package must allow them: one that it does not
	// allow is not notified, and the condition Notifying says so. A policy that is
	// built into federator may name any. At most 20 names are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Notifications []string `json:"notifications,omitempty"`
}

// UnknownMode defines whether incomplete data makes a verdict Unknown.
// +kubebuilder:validation:Enum=Strict;Tolerate
type UnknownMode string

// The modes of Unknown.
const (
	Strict   UnknownMode = "Strict"   // any incomplete data makes a verdict Unknown
	Tolerate UnknownMode = "Tolerate" // incomplete data of the selected members is ignored
)

// Unknown defines how incomplete data about members affects verdicts.
// Violations of an Unknown verdict are not corrected.
// +kubebuilder:validation:XValidation:rule="!has(self.members) || has(self.mode) && self.mode == 'Tolerate'",message="members may be set only if mode is Tolerate"
type Unknown struct {
	// mode defines whether incomplete data makes a verdict Unknown. Valid values
	// are:
	//
	// - Strict (default): a verdict is Unknown if any data that it depends on is
	//   incomplete.
	// - Tolerate: incomplete data of the selected members is ignored; a verdict is
	//   computed from what is known of them.
	// +optional
	// +kubebuilder:default=Strict
	Mode UnknownMode `json:"mode,omitempty"`

	// members selects the members whose incomplete data is tolerated. It may be
	// set only if mode is Tolerate. Defaults to all members.
	// +optional
	Members *MemberSelector `json:"members,omitempty"`
}

// Exemption selects violations that are expected. A violation is exempt if it
// matches all the fields that are set; at least one of members, namespaces,
// names and labels must be set.
// +kubebuilder:validation:XValidation:rule="has(self.members) && (has(self.members.names) && size(self.members.names) > 0 || has(self.members.labels) && (has(self.members.labels.matchLabels) && size(self.members.labels.matchLabels) > 0 || has(self.members.labels.matchExpressions) && size(self.members.labels.matchExpressions) > 0)) || has(self.namespaces) && size(self.namespaces) > 0 || has(self.names) && size(self.names) > 0 || has(self.labels) && (has(self.labels.matchLabels) && size(self.labels.matchLabels) > 0 || has(self.labels.matchExpressions) && size(self.labels.matchExpressions) > 0)",message="an exemption must set members, namespaces, names or labels"
type Exemption struct {
	// members selects members by name and labels.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// namespaces is a list of patterns for namespaces. The pattern "" matches
	// objects that have no namespace. At most 50 patterns are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// names is a list of patterns for the names of objects or members, or for the
	// keys of a view, depending on the subject of the package. At most 50 patterns
	// are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Names []NamePattern `json:"names,omitempty"`

	// labels selects objects by their labels.
	// +optional
	Labels *LabelSelector `json:"labels,omitempty"`

	// reason explains why the violation is expected. It is shown in reports.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('[^[:space:]]')",message="reason must not be blank"
	Reason string `json:"reason"`

	// expires is the time at which the exemption ends, in RFC 3339 format. If
	// unset, the exemption does not end.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Expires *metav1.Time `json:"expires,omitempty"`
}

// Limits restricts how many distinct objects a policy may change within a
// sliding time window, and how fast. Pending corrections count as well as
// written ones.
type Limits struct {
	// window is the length of the sliding time window: a written object counts
	// against the limits for this long. It is a duration between 1m and 720h.
	// Defaults to 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="window must be between 1m and 720h"
	Window *metav1.Duration `json:"window,omitempty"`

	// maxAffected is the maximum number of objects that may be changed within the
	// window.
	// +optional
	// +kubebuilder:default={}
	MaxAffected MaxAffected `json:"maxAffected,omitzero"`

	// actionsPerMinute is the maximum number of corrections that are written to
	// one member per minute. Corrections over this rate are delayed and do not
	// halt the policy. If unset, the rate is not limited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	ActionsPerMinute *int32 `json:"actionsPerMinute,omitempty"`

	// maxReversions is the number of corrections of one object within the window,
	// each reverted by somebody else, from which the policy is halted: two
	// controllers are fighting over the object. Defaults to 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=1000
	MaxReversions *int32 `json:"maxReversions,omitempty"`
}

// MaxAffected is the maximum number of objects that may be changed, counted
// for the policy, for each member and for the whole fleet. Each limit that is
// set must hold.
type MaxAffected struct {
	// policy limits the number of objects that this policy changes on all members
	// together. Defaults to 10 percent of the subjects that the policy evaluates;
	// set percent to 100 to remove the limit.
	// +optional
	// +kubebuilder:default={percent: 10}
	Policy *Limit `json:"policy,omitempty"`

	// member limits the number of objects that this policy changes on each member.
	// If unset, there is no limit per member.
	// +optional
	Member *Limit `json:"member,omitempty"`

	// fleet limits the number of objects that all policies together change on all
	// members: this policy is halted if it would exceed it. If unset, there is no
	// limit over the fleet.
	// +optional
	Fleet *Limit `json:"fleet,omitempty"`
}

// Limit is a maximum number of objects, as a count, a percentage or both. If
// both are set, the smaller one applies.
// +kubebuilder:validation:XValidation:rule="has(self.count) || has(self.percent)",message="a limit must set count, percent or both"
type Limit struct {
	// count is the maximum number of objects.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int32 `json:"count,omitempty"`

	// percent is the maximum number of objects as a percentage of the subjects
	// that the policy evaluates in the same scope, between 1 and 100. At least one
	// object is always allowed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
}
