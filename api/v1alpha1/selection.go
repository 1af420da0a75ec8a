package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode defines what federator does with the violations of a policy.
// +kubebuilder:validation:Enum=Observe;DryRun;Enforce
type Mode string

// The modes, each of which includes what those before it do.
const (
	Observe Mode = "Observe" // violations are reported
	DryRun  Mode = "DryRun"  // corrections are tried as server-side dry runs
	Enforce Mode = "Enforce" // corrections are written
)

// Kind is a kind as kubectl writes it, without its version, such as Pod or
// Deployment.apps.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
// +kubebuilder:validation:XValidation:rule="!self.matches('^[A-Za-z0-9]+[.]v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?([.]|$)')",message="a kind must be written without its version, such as Deployment.apps"
type Kind string

// MemberPattern is a pattern for the names of members, which are the
// <namespace>/<name> of their Cluster objects: * matches any text, ? matches
// any character and [a-z] matches a character of a range. None of them matches
// a slash.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])+/([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])+$`
type MemberPattern string

// NamespacePattern is a pattern for namespaces, with the same syntax as
// MemberPattern. The pattern "" matches objects that have no namespace.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])*$`
type NamespacePattern string

// NamePattern is a pattern for the names of objects or members, or for the
// keys of a view: * matches any text without a slash, ? matches any character,
// [a-z] matches a character of a range, and a backslash escapes the next
// character.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^([^\\\[]|\\.|\[\^?([^-\^\\\]]|\\.)(-([^-\\\]]|\\.))?(([^-\\\]]|\\.)(-([^-\\\]]|\\.))?)*\])+$`
type NamePattern string

// MemberSelector selects members that match one of the names, if any are set,
// and the labels, if they are set. An empty selector matches all members.
type MemberSelector struct {
	// names is a list of patterns for the names of members, which are the
	// <namespace>/<name> of their Cluster objects. A member must match at least
	// one of them. At most 100 patterns are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Names []MemberPattern `json:"names,omitempty"`

	// labels selects members by the labels of their Cluster objects.
	// +optional
	Labels *LabelSelector `json:"labels,omitempty"`
}

// Match selects the objects that a policy evaluates. An object must match all
// the fields that are set; an empty Match selects all objects.
type Match struct {
	// kinds restricts the kinds that are evaluated to these, of the kinds that the
	// package declares. Kinds are written as kubectl does, without a version, such
	// as Pod or Deployment.apps. At most 50 kinds are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Kinds []Kind `json:"kinds,omitempty"`

	// namespaces is a list of patterns for namespaces. The pattern "" matches
	// objects that have no namespace. At most 100 patterns are allowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// labels selects objects by their labels.
	// +optional
	Labels *LabelSelector `json:"labels,omitempty"`
}

// LabelKey is the key of a label.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
type LabelKey string

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string

// LabelSelector is a label selector like metav1.LabelSelector, but the API
// server rejects one that could not be used. All its requirements must be met.
type LabelSelector struct {
	// matchLabels is a map of label keys to the values that they must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions is a list of label selector requirements, all of which must
	// be met.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement is a requirement on one label.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="values must be set if operator is In or NotIn, and must not be set if it is Exists or DoesNotExist"
type LabelSelectorRequirement struct {
	// key is the label key that the requirement applies to.
	// +required
	Key LabelKey `json:"key"`

	// operator is the relation of the label to the values. Valid values are In,
	// NotIn, Exists and DoesNotExist.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values is a list of label values. It must not be empty if the operator is In
	// or NotIn, and must be empty if the operator is Exists or DoesNotExist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Values []LabelValue `json:"values,omitempty"`
}

// Meta returns the selector as a metav1.LabelSelector; nil stays nil.
func (s *LabelSelector) Meta() *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	out := &metav1.LabelSelector{}
	for k, v := range s.MatchLabels {
		metav1.AddLabelToSelector(out, k, string(v))
	}
	for _, e := range s.MatchExpressions {
		values := make([]string, len(e.Values))
		for i, v := range e.Values {
			values[i] = string(v)
		}
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: string(e.Key), Operator: e.Operator, Values: slices.Clip(values),
		})
	}
	return out
}

// Origin is where a Rego package was read from. It is empty for a package that
// is built into federator.
type Origin struct {
	// source is the name of the PolicySource.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source,omitempty"`

	// commit is the full hash of the git commit.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// path is the path of the package's file in the repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`
}

// CommitHash is the full hash of a git commit, SHA-1 or SHA-256.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^([0-9a-f]{40}|[0-9a-f]{64})$`
type CommitHash string

// Condition types. Their reasons are in CamelCase.
const (
	// Ready is True if a FleetPolicy is in effect as specified, or if the newest
	// commit of a PolicySource is active.
	Ready = "Ready"

	// Evaluated is True if all evaluations of a FleetPolicy completed without an error.
	// If not, the reason is Quarantined, ViewTooLarge or ContributionFailed, and the
	// message names the members and objects. Other verdicts are not affected.
	Evaluated = "Evaluated"

	// Enforcing is True if corrections of a FleetPolicy may be written now. If not, the
	// reason says why: Observing, DryRunning, Suspended, Halted, WindowClosed,
	// TooManyActions (the hub has as many Actions as it may have) and others.
	Enforcing = "Enforcing"

	// Approved is True if what a FleetPolicy would write needs no approval or has it. If
	// not, the reason is Waiting or Unproven.
	Approved = "Approved"

	// Notifying is True, reason Allowed, if the ceiling of a FleetPolicy's source allows all of
	// spec.notifications, and False, reason NotAllowed, if not. It is absent while that is empty.
	Notifying = "Notifying"

	// Fetched, Verified, Compiled, Tested and Bounded are the checks that the newest
	// commit of a PolicySource has to pass, in order.
	Fetched  = "Fetched"
	Verified = "Verified"
	Compiled = "Compiled" // it contains policies that compile without lint errors
	Tested   = "Tested"   // its own tests pass
	Bounded  = "Bounded"  // it changes no more verdicts than spec.maxDiff

	// Applied is True if the FleetPolicies in the repository are applied to the hub.
	Applied = "Applied"

	// ExternalData is True if all of spec.external of a PolicySource was read, and is not too old.
	ExternalData = "ExternalData"
)
