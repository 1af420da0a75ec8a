package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Notification sends transitions that federator records in its history to
// another system: a webhook, NATS or Alertmanager. Each federator process sends
// what it has recorded, in order, from where the status says that it has come
// to. Deleting a Notification ends this; alerts that it has opened in
// Alertmanager expire there.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fnotif,categories=federator
// +kubebuilder:printcolumn:name="Sink",type=string,JSONPath=`.status.sink`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reportedUntil`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be at most 63 lower case letters, digits and hyphens: policies name it"
type Notification struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is which transitions are sent, and where.
	// +required
	Spec NotificationSpec `json:"spec"`

	// status is how far the Notification has come. It is written by federator and
	// is read-only for users.
	// +optional
	Status NotificationStatus `json:"status,omitzero"`
}

// NotificationList is a list of Notifications.
//
// +kubebuilder:object:root=true
type NotificationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Notification `json:"items"`
}

// NotificationSpec defines which transitions are sent, and where. Exactly one of
// webhook, nats and alertmanager must be set.
// +kubebuilder:validation:XValidation:rule="[has(self.webhook), has(self.nats), has(self.alertmanager)].filter(x, x).size() == 1",message="exactly one of webhook, nats and alertmanager must be set"
type NotificationSpec struct {
	// webhook is an address that messages are posted to.
	// +optional
	Webhook *NotificationWebhook `json:"webhook,omitempty"`

	// nats is a stream of NATS JetStream that each transition is published to.
	// +optional
	NATS *NotificationNATS `json:"nats,omitempty"`

	// alertmanager is a cluster of Prometheus Alertmanagers, which get an alert for
	// each group of open violations.
	// +optional
	Alertmanager *NotificationAlertmanager `json:"alertmanager,omitempty"`

	// rules select the transitions that are sent: those that match at least one of
	// them. Transitions of FleetPolicies that name this Notification in
	// spec.notifications are sent in any case. If empty, only these are. At most 50
	// rules are allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Rules []NotificationRule `json:"rules,omitempty"`

	// includeText includes messages of violations, changed fields and other text
	// that comes from objects of members. People who read it where it is sent to
	// need no grant for these objects. If false, such text is left out. Defaults to
	// false.
	// +optional
	IncludeText bool `json:"includeText,omitempty"`

	// suspend stops transitions from being sent. They are sent later, if the
	// history still has them then. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// NotificationType is what a transition is about.
// +kubebuilder:validation:Enum=Violation;Action;Policy;Member;Kind;Object
type NotificationType string

// What transitions are about.
const (
	NotifyViolation NotificationType = "Violation" // a verdict
	NotifyAction    NotificationType = "Action"
	NotifyPolicy    NotificationType = "Policy"
	NotifyMember    NotificationType = "Member"
	NotifyKind      NotificationType = "Kind" // in a member
	NotifyObject    NotificationType = "Object"
)

// NotificationRule selects transitions. A transition must match all the fields
// that are set.
type NotificationRule struct {
	// types is what the transitions are about. Valid values are:
	//
	// - Violation: violations that open, change or close, and evaluations that fail.
	// - Action: the phases of Actions.
	// - Policy: halts, Plans, Approvals, stops and commits.
	// - Member: members that join or leave.
	// - Kind: a kind that is or is not synced in a member.
	// - Object: changes of objects.
	//
	// Defaults to Violation and Policy.
	// +optional
	// +listType=set
	// +kubebuilder:default={Violation,Policy}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=6
	Types []NotificationType `json:"types,omitempty"`

	// policies is a list of patterns for the names of policies, with the same
	// syntax as MemberPattern. Transitions that are of no policy do not match. At
	// most 100 patterns are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])+$`
	Policies []string `json:"policies,omitempty"`

	// severities is a list of the severities of violations: low, medium, high and
	// critical. Transitions that have no severity do not match.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=low;medium;high;critical
	Severities []string `json:"severities,omitempty"`

	// members selects the members that the transitions happen in. If it is set,
	// transitions that are of no member do not match.
	// +optional
	Members MemberSelector `json:"members,omitzero"`

	// kinds are the kinds of objects, such as Deployment.apps, or "*" for all
	// kinds. Transitions that are of no kind do not match. At most 50 kinds are
	// allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Kinds []KindOrAll `json:"kinds,omitempty"`

	// namespaces is a list of patterns for the namespaces of objects. The pattern
	// "" matches objects that have no namespace. At most 100 patterns are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// transitions are the names of transitions as the history has them, such as
	// Opened, Closed, Halted or Failed. Defaults to all. At most 50 names are
	// allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Z][A-Za-z]{0,62}$`
	Transitions []string `json:"transitions,omitempty"`
}

// NotificationStatus is the observed status of a Notification.
type NotificationStatus struct {
	// observedGeneration is the metadata.generation that this status was computed
	// from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// sink is where transitions are sent to: Webhook, NATS or Alertmanager.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Sink string `json:"sink,omitempty"`

	// reportedUntil is the time of the history that was sent last, of the process
	// that is furthest behind.
	// +optional
	ReportedUntil *metav1.Time `json:"reportedUntil,omitempty"`

	// conditions are the latest observations of the Notification's state. Known
	// condition types are:
	//
	// - Ready: transitions are sent. If not, the reason is Failing, Suspended,
	//   Invalid, SecretInvalid or NoHistory.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// processes are the federator processes that send what they have recorded. At
	// most 100 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Processes []NotificationProcess `json:"processes,omitempty"`
}

// The sinks, as status.sink has them.
const (
	SinkWebhook      = "Webhook"
	SinkNATS         = "NATS"
	SinkAlertmanager = "Alertmanager"
)

// Reasons of the condition Ready of a Notification.
const (
	NotificationSending   = "Sending"       // what is recorded is sent, Ready is True
	NotificationFailing   = "Failing"       // a process cannot send, and tries again
	NotificationSuspended = "Suspended"     // by spec.suspend
	NotificationInvalid   = "Invalid"       // the spec cannot be used
	NotificationSecret    = "SecretInvalid" // the Secret is missing, or lacks a key, or one of its keys cannot be used
	NotificationNoHistory = "NoHistory"     // federator records no history
)

// NotificationProcess is how far a federator process has come.
type NotificationProcess struct {
	// name is the name of the process.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// log is the id of the history of the process.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Log string `json:"log,omitempty"`

	// position is where in the log the process has come to: everything before it
	// was sent, or was not selected.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Position int64 `json:"position,omitempty"`

	// reportedUntil is the time of the transition at position.
	// +optional
	ReportedUntil *metav1.Time `json:"reportedUntil,omitempty"`

	// waiting is the number of transitions that are recorded and selected, and not
	// sent yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Waiting int64 `json:"waiting,omitempty"`

	// lastSent is when something was sent last.
	// +optional
	LastSent *metav1.Time `json:"lastSent,omitempty"`

	// failures is the number of attempts that have failed since something was sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`

	// message is why the last attempt failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
