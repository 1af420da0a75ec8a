package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicySourceStatus is where a PolicySource stands.
type PolicySourceStatus struct {
	// ObservedGeneration is the metadata.generation that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, the gates in order (Fetched, Verified, Compiled, Tested,
	// Bounded), and Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ActiveCommit is the one whose policies are in effect. They may be enforced only
	// while it is also the observed one.
	// +optional
	ActiveCommit *Commit `json:"activeCommit,omitempty"`

	// ObservedCommit is the newest that was read.
	// +optional
	ObservedCommit *Commit `json:"observedCommit,omitempty"`

	// LastDiff is what the observed commit changes in the verdicts on the live fleet.
	// +optional
	LastDiff *Diff `json:"lastDiff,omitempty"`

	// Findings are those of the observed commit, errors first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Findings []Finding `json:"findings,omitempty"`

	// FleetPolicies are what was applied to the hub.
	// +optional
	FleetPolicies *AppliedPolicies `json:"fleetPolicies,omitempty"`

	// LastContact is when the remote last said which commit is the newest, to the
	// minute while nothing else changes.
	// +optional
	LastContact *metav1.Time `json:"lastContact,omitempty"`

	// LastSync is the value of the annotation federator.dev/sync that was last seen.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	LastSync string `json:"lastSync,omitempty"`

	// LastPush is when a webhook last told of a push. Each process looks at the
	// repository then.
	// +optional
	LastPush *metav1.MicroTime `json:"lastPush,omitempty"`
}

// Commit is a commit of a repository.
type Commit struct {
	// +required
	Hash CommitHash `json:"hash"`

	// Ref is the full name that led to it, or a hash.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Ref string `json:"ref,omitempty"`

	// Path in the repository; "." is the root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxLength=256
	Author string `json:"author,omitempty"`

	// Time is the author's.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// Signer is whose trusted key has signed it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Signer string `json:"signer,omitempty"`

	// Since is when it became active, or was first read.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Diff counts verdicts that a commit changes.
type Diff struct {
	// Commit that changes them.
	// +required
	Commit CommitHash `json:"commit"`

	// Appeared are new violations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Appeared int64 `json:"appeared"`

	// Cleared are violations that are gone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Cleared int64 `json:"cleared"`

	// Changed are violations with another text, severity or remedy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Changed int64 `json:"changed"`

	// Unknown are verdicts that are no longer Known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int64 `json:"unknown"`

	// Allowed is the bound, spec.maxDiff.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Allowed int64 `json:"allowed,omitempty"`
}

// Severity of a finding.
// +kubebuilder:validation:Enum=error;warning
type Severity string

// The severities of findings.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is something about a file in the repository.
type Finding struct {
	// File is the path in the repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	File string `json:"file,omitempty"`

	// Line in the file, from 1; 0 is the whole file.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Line int32 `json:"line,omitempty"`

	// Column in the line, from 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Column int32 `json:"column,omitempty"`

	// +required
	Severity Severity `json:"severity"`

	// Code names the rule.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code,omitempty"`

	// +required
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// AppliedPolicies counts the FleetPolicies of a repository.
type AppliedPolicies struct {
	// Commit that was applied.
	// +required
	Commit CommitHash `json:"commit"`

	// Synced are on the hub as they are in the repository.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Synced int32 `json:"synced"`

	// Failed could not be applied.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`

	// Pruned were deleted with this commit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pruned int32 `json:"pruned"`

	// Kept are in the repository no longer, and more than spec.maxPrune allows.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Kept int32 `json:"kept"`
}
