package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicySourceStatus is the observed status of a PolicySource.
type PolicySourceStatus struct {
	// observedGeneration is the metadata.generation that this status was computed
	// from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the latest observations of the source's state. Known
	// condition types are:
	//
	// - Ready: the newest commit is active.
	// - Fetched: the repository was fetched.
	// - Verified: the commit has a trusted signature, if one is required.
	// - Compiled: the commit contains policies that compile without lint errors.
	// - Tested: the tests in the commit pass.
	// - Bounded: the commit changes no more verdicts than spec.maxDiff allows.
	// - Applied: the FleetPolicies in the commit are applied to the hub.
	// - ExternalData: all of spec.external was read, and is not too old.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// activeCommit is the commit whose policies are in effect. Its policies are
	// enforced only while it is also the observed commit.
	// +optional
	ActiveCommit *Commit `json:"activeCommit,omitempty"`

	// packages are the names of the packages of the active commit. Other sources
	// cannot bring packages of these names, even while this source cannot be read.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2000
	// +kubebuilder:validation:items:MaxLength=253
	Packages []string `json:"packages,omitempty"`

	// observedCommit is the newest commit that was read.
	// +optional
	ObservedCommit *Commit `json:"observedCommit,omitempty"`

	// rollout is that of the observed commit, where it rolls out. It is not set
	// once the commit is active.
	// +optional
	Rollout *SourceRolloutStatus `json:"rollout,omitempty"`

	// lastDiff is how the observed commit changes verdicts on the live fleet.
	// +optional
	LastDiff *Diff `json:"lastDiff,omitempty"`

	// approvals are the Approvals that count of the observed commit, which changes
	// more verdicts than spec.maxDiff allows, or is in shadow.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Approvals []GivenApproval `json:"approvals,omitempty"`

	// findings are errors and warnings about files of the observed commit, errors
	// first. At most 50 findings are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Findings []Finding `json:"findings,omitempty"`

	// external is what is known of the documents of spec.external, in that order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	External []ExternalDocumentStatus `json:"external,omitempty"`

	// fleetPolicies are the numbers of FleetPolicies from the repository by
	// outcome.
	// +optional
	FleetPolicies *AppliedPolicies `json:"fleetPolicies,omitempty"`

	// lastContact is the time at which the repository was last checked
	// successfully. It is updated at most once a minute while nothing else
	// changes.
	// +optional
	LastContact *metav1.Time `json:"lastContact,omitempty"`

	// lastSync is the last observed value of the annotation federator.dev/sync.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	LastSync string `json:"lastSync,omitempty"`

	// lastPush is the time of the last push that a webhook reported. Every
	// federator process then checks the repository.
	// +optional
	LastPush *metav1.MicroTime `json:"lastPush,omitempty"`
}

// Commit describes a git commit.
type Commit struct {
	// hash is the full hash of the commit.
	// +required
	Hash CommitHash `json:"hash"`

	// ref is the full name of the ref that the commit was resolved from, or a
	// hash.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Ref string `json:"ref,omitempty"`

	// path is the directory with policies in the repository; "." is the root.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// author is the author of the commit.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Author string `json:"author,omitempty"`

	// time is the author date of the commit.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// signer is the owner of the trusted key that signed the commit.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Signer string `json:"signer,omitempty"`

	// since is the time at which the commit became active or, for the observed
	// commit, was first read.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Diff is how many verdicts a commit changes.
type Diff struct {
	// commit is the full hash of the commit that changes the verdicts.
	// +required
	Commit CommitHash `json:"commit"`

	// appeared is the number of new violations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Appeared int64 `json:"appeared"`

	// cleared is the number of violations that no longer exist.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Cleared int64 `json:"cleared"`

	// changed is the number of violations whose message, severity or remedy is
	// different.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Changed int64 `json:"changed"`

	// unknown is the number of verdicts that become Unknown or fail.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int64 `json:"unknown"`

	// enforcement is the number of violations that are corrected otherwise, because
	// the mode, the limits, the waves, the window or the members of their
	// FleetPolicies change; it is at least one for each such FleetPolicy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Enforcement int64 `json:"enforcement,omitempty"`

	// allowed is the maximum number of changes, from spec.maxDiff.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Allowed int64 `json:"allowed,omitempty"`
}

// Severity is the severity of a finding.
// +kubebuilder:validation:Enum=error;warning
type Severity string

// The severities of findings.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Finding is an error or a warning about a file in the repository.
type Finding struct {
	// file is the path of the file in the repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	File string `json:"file,omitempty"`

	// line is the line in the file, starting at 1. It is 0 if the finding is about
	// the whole file.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Line int32 `json:"line,omitempty"`

	// column is the column in the line, starting at 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Column int32 `json:"column,omitempty"`

	// severity is the severity of the finding. Errors prevent the commit from
	// becoming active; warnings do not.
	// +required
	Severity Severity `json:"severity"`

	// code is the identifier of the rule that reported the finding.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Code string `json:"code,omitempty"`

	// message is a human-readable description of the finding.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// AppliedPolicies are the numbers of FleetPolicies from a repository by
// outcome.
type AppliedPolicies struct {
	// commit is the full hash of the commit that was applied.
	// +required
	Commit CommitHash `json:"commit"`

	// synced is the number of FleetPolicies that are on the hub as they are in the
	// repository.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Synced int32 `json:"synced"`

	// failed is the number of FleetPolicies that could not be applied.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`

	// pruned is the number of FleetPolicies that were deleted with this commit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pruned int32 `json:"pruned"`

	// kept is the number of FleetPolicies that are no longer in the repository but
	// were not deleted, because spec.maxPrune does not allow it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Kept int32 `json:"kept"`
}
