package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FleetPolicy binds a Rego package to members and objects, and says what may come
// of its violations. Deleting it ends its enforcement at once and reverts nothing.
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
// +kubebuilder:printcolumn:name="Commit",type=string,priority=1,JSONPath=`.status.origin.commit`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:selectablefield:JSONPath=`.spec.package`
// +kubebuilder:selectablefield:JSONPath=`.spec.mode`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a FleetPolicy has at most 63 characters: it is a label of its Actions"
type FleetPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is what is wanted.
	// +required
	Spec FleetPolicySpec `json:"spec"`

	// Status is what has come of it; federator writes it.
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

// FleetPolicySpec says where a package applies and what may come of it.
type FleetPolicySpec struct {
	// Package is the Rego package, as it follows "package": what fields a policy
	// owns on members hangs on it, so that another package takes another FleetPolicy.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the package of a FleetPolicy cannot be changed: make another FleetPolicy"
	// +kubebuilder:validation:XValidation:rule="self != 'fleet' && !self.startsWith('fleet.')",message="data.fleet holds the documents of the fleet, and no policies"
	Package string `json:"package"`

	// Source is the PolicySource that the package must come from. Without it, it may
	// come from any of them, or with federator.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Source string `json:"source,omitempty"`

	// Members are those whose objects are judged; all by default.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// Match narrows the objects that are judged.
	// +optional
	Match Match `json:"match,omitzero"`

	// Parameters are the package's input.parameters, by the schema in its METADATA.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Visibility are the members that data.fleet shows to the policy; all by default.
	// +optional
	Visibility MemberSelector `json:"visibility,omitzero"`

	// Unknown says what becomes of verdicts that rest on members which are not
	// completely known.
	// +optional
	// +kubebuilder:default={}
	Unknown Unknown `json:"unknown,omitzero"`

	// Exemptions are violations that are expected. They stay visible.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Exemptions []Exemption `json:"exemptions,omitempty"`

	// Mode is what may come of violations. The ceiling of the package's PolicySource
	// holds, too.
	// +optional
	// +kubebuilder:default=Observe
	Mode Mode `json:"mode,omitempty"`

	// Force lets corrections take over fields that other field managers own. Without
	// it such an Action is Contended.
	// +optional
	Force bool `json:"force,omitempty"`

	// Limits bound what corrections may affect. Over one of them nothing more is
	// written, and the policy is halted until somebody acknowledges.
	// +optional
	// +kubebuilder:default={}
	Limits Limits `json:"limits,omitzero"`

	// Waves are written to in order, each after the one before has soaked. Members
	// that no wave selects are not written to. Without waves all are, at once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Waves []Wave `json:"waves,omitempty"`

	// Window is when corrections may be written; always by default.
	// +optional
	Window *Window `json:"window,omitempty"`

	// Suspend keeps corrections from being written. Violations are still reported.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// ActAs is the user whom federator impersonates on members for the policy's
	// corrections, such as system:serviceaccount:platform:fixer. It must be allowed to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('system:') || self.matches('^system:serviceaccount:[a-z0-9]([-a-z0-9]*[a-z0-9])?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="of the users of the system only a service account can be impersonated: system:serviceaccount:<namespace>:<name>"
	ActAs string `json:"actAs,omitempty"`
}

// UnknownMode says whether gaps count.
// +kubebuilder:validation:Enum=Strict;Tolerate
type UnknownMode string

// The modes of Unknown.
const (
	Strict   UnknownMode = "Strict"   // any gap makes a verdict Unknown
	Tolerate UnknownMode = "Tolerate" // those of some members do not
)

// Unknown says what becomes of verdicts that rest on members which are not
// completely known. Nothing is corrected because of an Unknown verdict.
// +kubebuilder:validation:XValidation:rule="!has(self.members) || has(self.mode) && self.mode == 'Tolerate'",message="members are for mode Tolerate: Strict tolerates none"
type Unknown struct {
	// +optional
	// +kubebuilder:default=Strict
	Mode UnknownMode `json:"mode,omitempty"`

	// Members are those whose gaps are tolerated; all by default.
	// +optional
	Members *MemberSelector `json:"members,omitempty"`
}

// Exemption says which subjects' violations are expected: those that fit all that
// it has.
// +kubebuilder:validation:XValidation:rule="has(self.members) && (has(self.members.names) && size(self.members.names) > 0 || has(self.members.labels) && (has(self.members.labels.matchLabels) && size(self.members.labels.matchLabels) > 0 || has(self.members.labels.matchExpressions) && size(self.members.labels.matchExpressions) > 0)) || has(self.namespaces) && size(self.namespaces) > 0 || has(self.names) && size(self.names) > 0 || has(self.labels) && (has(self.labels.matchLabels) && size(self.labels.matchLabels) > 0 || has(self.labels.matchExpressions) && size(self.labels.matchExpressions) > 0)",message="an exemption selects something: members, namespaces, names or labels"
type Exemption struct {
	// Members by name and labels.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// Namespaces are patterns.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// Names are patterns for names of objects or members, or for keys of a view.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Names []NamePattern `json:"names,omitempty"`

	// Labels selects by the labels of objects.
	// +optional
	Labels *LabelSelector `json:"labels,omitempty"`

	// Reason is for those who read the reports.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('[^[:space:]]')",message="say why this is expected"
	Reason string `json:"reason"`

	// Expires is when the exemption ends; never by default.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	Expires *metav1.Time `json:"expires,omitempty"`
}

// Limits bound how many distinct targets, pending and written, are affected within
// a sliding window, and how fast.
type Limits struct {
	// Window is how long a written target counts.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="the window is from 1m to 720h"
	Window *metav1.Duration `json:"window,omitempty"`

	// MaxAffected are the limits.
	// +optional
	// +kubebuilder:default={}
	MaxAffected MaxAffected `json:"maxAffected,omitzero"`

	// ActionsPerMinute is how many corrections one member gets per minute; those
	// beyond wait. Any number by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	ActionsPerMinute *int32 `json:"actionsPerMinute,omitempty"`
}

// MaxAffected are limits on what is counted separately.
type MaxAffected struct {
	// Policy bounds the targets of this policy on all members, by default a tenth of
	// what it judges. An unbounded policy says percent: 100.
	// +optional
	// +kubebuilder:default={percent: 10}
	Policy *Limit `json:"policy,omitempty"`

	// Member bounds the targets of this policy on each member.
	// +optional
	Member *Limit `json:"member,omitempty"`

	// Fleet bounds the targets of all policies together: this one writes nothing that
	// would exceed it. The limit that the hub is configured with holds, too.
	// +optional
	Fleet *Limit `json:"fleet,omitempty"`
}

// Limit bounds a number of targets. With both, the smaller holds.
// +kubebuilder:validation:XValidation:rule="has(self.count) || has(self.percent)",message="a limit has a count, a percent or both"
type Limit struct {
	// Count of targets.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int32 `json:"count,omitempty"`

	// Percent of what the policy judges there, at least one target.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent *int32 `json:"percent,omitempty"`
}

// Wave is a group of members that is written to after others.
type Wave struct {
	// Name of the wave.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Members that are not in an earlier wave; all of the rest by default.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// Soak is how long what was written must stay healthy before the next wave.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="the soak time is at most 720h"
	Soak *metav1.Duration `json:"soak,omitempty"`

	// Health is what what was written must be like before the next wave.
	// +optional
	// +kubebuilder:default={}
	Health HealthGate `json:"health,omitzero"`
}

// HealthRequirement is what the health of written objects must be. Health is that
// of Argo CD.
// +kubebuilder:validation:Enum=Healthy;NotDegraded;Any
type HealthRequirement string

// What a HealthGate can require.
const (
	RequireHealthy     HealthRequirement = "Healthy"     // all are Healthy, or have no health
	RequireNotDegraded HealthRequirement = "NotDegraded" // none is Degraded or Missing
	RequireNothing     HealthRequirement = "Any"
)

// HealthGate halts a policy when what a wave has written does not get well.
type HealthGate struct {
	// Require is what objects must be like.
	// +optional
	// +kubebuilder:default=Healthy
	Require HealthRequirement `json:"require,omitempty"`

	// Timeout is how long they may take. A Degraded one halts the policy at once.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="the timeout is from 1s to 24h"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Window is when corrections may be written.
type Window struct {
	// Schedule is when a window opens: minute, hour, day of month, month and day of
	// week, as in crontab(5).
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ ]+( [^ ]+){4}$')",message="a schedule has five fields: minute, hour, day of month, month and day of week, such as '0 2 * * MON-FRI'"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[0].upperAscii().matches('^([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?(,([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?)*$')",message="the minute is 0-59"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[1].upperAscii().matches('^([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)*$')",message="the hour is 0-23"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[2].upperAscii().matches('^([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)*$')",message="the day of the month is 1-31"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[3].upperAscii().matches('^([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?)*$')",message="the month is 1-12 or JAN-DEC"
	// +kubebuilder:validation:XValidation:rule="self.split(' ').size() != 5 || self.split(' ')[4].upperAscii().matches('^([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?(,([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?)*$')",message="the day of the week is 0-6, from Sunday, or SUN-SAT"
	Schedule string `json:"schedule"`

	// Duration is how long it stays open.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="a window stays open from 1m to 168h"
	Duration metav1.Duration `json:"duration"`

	// TimeZone of the schedule, of the IANA database, such as Europe/Berlin.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local' && self.matches('^[A-Za-z][-+_A-Za-z0-9]*(/[-+_A-Za-z0-9]+)*$') && timestamp('2020-01-01T00:00:00Z').getFullYear(self) > 0",message="a time zone is a name of the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}
