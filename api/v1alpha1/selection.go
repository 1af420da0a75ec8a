package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Mode is what may come of a policy's violations.
// +kubebuilder:validation:Enum=Observe;DryRun;Enforce
type Mode string

// The modes, each of which includes what those before it do.
const (
	Observe Mode = "Observe" // violations are reported
	DryRun  Mode = "DryRun"  // corrections are tried out, without effect
	Enforce Mode = "Enforce" // corrections are written
)

// Kind is a kind as kubectl writes it, without a version: Pod, Deployment.apps.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
// +kubebuilder:validation:XValidation:rule="!self.matches('^[A-Za-z0-9]+[.]v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?([.]|$)')",message="a kind is written without its version, such as Deployment.apps"
type Kind string

// MemberPattern selects members by <namespace>/<name> of their Clusters: * is any
// text, ? any character and [a-z] one of some; none of them fits a slash.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])+/([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])+$`
type MemberPattern string

// NamespacePattern selects namespaces, as MemberPattern does members. "" is
// whatever has no namespace.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^([-a-z0-9.*?]|\[\^?([a-z0-9.](-[a-z0-9.])?)+\])*$`
type NamespacePattern string

// NamePattern selects objects by name, or keys of a view: * is any text without
// a slash, ? any character, [a-z] one of some, and \ takes their meaning away.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^([^\\\[]|\\.|\[\^?([^-\^\\\]]|\\.)(-([^-\\\]]|\\.))?(([^-\\\]]|\\.)(-([^-\\\]]|\\.))?)*\])+$`
type NamePattern string

// MemberSelector selects members: those that fit one of the names and the labels.
// An empty one selects all.
type MemberSelector struct {
	// Names are patterns for <namespace>/<name> of Clusters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Names []MemberPattern `json:"names,omitempty"`

	// Labels selects by the labels of Clusters.
	// +optional
	Labels *LabelSelector `json:"labels,omitempty"`
}

// Match selects objects. What it leaves out selects everything.
type Match struct {
	// Kinds narrows the kinds that the package judges.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Kinds []Kind `json:"kinds,omitempty"`

	// Namespaces are patterns; "" is whatever has no namespace.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	Namespaces []NamespacePattern `json:"namespaces,omitempty"`

	// Labels selects by the labels of objects.
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

// LabelSelector is metav1.LabelSelector with bounds and rules, so that one that
// cannot be used is refused. All of it must fit.
type LabelSelector struct {
	// MatchLabels are labels with these values.
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// MatchExpressions are requirements on labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	MatchExpressions []LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelSelectorRequirement says what a label must be like.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="In and NotIn take values; Exists and DoesNotExist take none"
type LabelSelectorRequirement struct {
	// Key of the label.
	// +required
	Key LabelKey `json:"key"`

	// Operator relates the label to the values.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// Values are what the label may, or may not, be.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Values []LabelValue `json:"values,omitempty"`
}

// Meta returns the selector as the rest of Kubernetes has it; nil stays nil.
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

// Origin is where a policy was read. A package that comes with federator has no
// commit.
type Origin struct {
	// Source is the name of the PolicySource.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source,omitempty"`

	// Commit is the full hash.
	// +optional
	Commit CommitHash `json:"commit,omitempty"`

	// Path is the file of the package in the repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`
}

// CommitHash is the full hash of a git commit, SHA-1 or SHA-256.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern=`^([0-9a-f]{40}|[0-9a-f]{64})$`
type CommitHash string

// Conditions of the kinds. Their reasons are words in camel case.
const (
	// Ready says whether a FleetPolicy is in effect as it is written, and whether
	// the newest commit of a PolicySource is active.
	Ready = "Ready"

	// Evaluated says whether all evaluations of a FleetPolicy's policy gave an answer.
	// If not, the reason is Quarantined, ViewTooLarge or ContributionFailed, and the
	// message says of which members and objects. Other verdicts are not concerned.
	Evaluated = "Evaluated"

	// Enforcing says whether a FleetPolicy may write now. If not, the reason is
	// why: Observing, DryRunning, Suspended, Halted, WindowClosed, and more.
	Enforcing = "Enforcing"

	// Fetched, Verified, Compiled, Tested and Bounded are the gates of a
	// PolicySource: what its newest commit has passed.
	Fetched  = "Fetched"
	Verified = "Verified"
	Compiled = "Compiled" // it has policies, they compile, and lint has no error
	Tested   = "Tested"   // its own tests pass
	Bounded  = "Bounded"  // it changes no more than spec.maxDiff

	// Applied says whether the FleetPolicies in the repository are those on the hub.
	Applied = "Applied"
)
