package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// VersionRollout is how a new version of a policy takes the place of the former
// one: first it is judged beside it, then it takes its place in one wave of members
// after another. The former version stays in effect where it has not, and enforces.
// A version whose evidence does not hold is taken back.
type VersionRollout struct {
	// shadow is how long a new version is judged beside the former one on all
	// members before it takes its place in any. It is a duration of up to 720h.
	// Defaults to 1h. An Approval ends it earlier.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="shadow must be at most 720h"
	Shadow *metav1.Duration `json:"shadow,omitempty"`

	// waves are the groups of members in which the version takes the place of the
	// former one, in order, for policies that are enforced. Defaults to spec.waves
	// of the FleetPolicy. At most 20 waves are allowed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Waves []Wave `json:"waves,omitempty"`

	// maxNew is how many violations the version may find that the former one does
	// not find: a number, or a percentage of the subjects such as "5%". More of
	// them take it back. Defaults to "5%". It does not apply to a package that the
	// former version does not have.
	// +optional
	// +kubebuilder:default="5%"
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxNew must be a number or a percentage such as 5%"
	MaxNew *intstr.IntOrString `json:"maxNew,omitempty"`

	// maxErrors is on how many subjects evaluating the version may fail where the
	// former one does not: a number, or a percentage of the subjects. More of them
	// take it back. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="maxErrors must be a number or a percentage such as 5%"
	MaxErrors *intstr.IntOrString `json:"maxErrors,omitempty"`

	// maxCost is how much CPU time an evaluation of the version may take on
	// average, in percent of what one of the former version takes, such as "200%".
	// A higher cost takes it back. If unset, the cost is not limited.
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,6}%$`
	MaxCost string `json:"maxCost,omitempty"`
}

// RolloutPhase is how far a version has come.
// +kubebuilder:validation:Enum=Shadow;Waves;Promoted;TakenBack
type RolloutPhase string

// The phases of a version.
const (
	RolloutShadow    RolloutPhase = "Shadow"    // it is judged on all members, and in effect in none
	RolloutWaves     RolloutPhase = "Waves"     // it is in effect in the members of the first waves
	RolloutPromoted  RolloutPhase = "Promoted"  // it is in effect in all members
	RolloutTakenBack RolloutPhase = "TakenBack" // its evidence did not hold: it is in effect nowhere
)

// PolicyRolloutStatus are the versions of a FleetPolicy whose versions roll out.
type PolicyRolloutStatus struct {
	// effective is the version that is in effect where the candidate is not.
	// +optional
	Effective *EffectiveVersion `json:"effective,omitempty"`

	// candidate is the version that is to take its place. It is not set if there is
	// none.
	// +optional
	Candidate *CandidateVersion `json:"candidate,omitempty"`
}

// EffectiveVersion is a version that is in effect.
type EffectiveVersion struct {
	// digest is the digest of the package, of what it imports, and of the
	// parameters.
	// +required
	Digest Digest `json:"digest"`

	// package is the digest of the package and of what it imports.
	// +optional
	Package Digest `json:"package,omitempty"`

	// parameters are those of the version.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// CandidateVersion is a version that is to take the place of the one in effect.
type CandidateVersion struct {
	// digest is the digest of the package, of what it imports, and of the
	// parameters.
	// +required
	Digest Digest `json:"digest"`

	// package is the digest of the package and of what it imports.
	// +optional
	Package Digest `json:"package,omitempty"`

	// origin is where the package was read from. It is not set for a package that
	// is built into federator.
	// +optional
	Origin *Origin `json:"origin,omitempty"`

	// phase is how far the version has come. Valid values are:
	//
	// - Shadow: it is judged on all members, and in effect in none.
	// - Waves: it is in effect in the members of the first waves.
	// - Promoted: it is in effect in all members.
	// - TakenBack: its evidence did not hold. Nothing is corrected until there is
	//   another version, or the former one again.
	// +required
	Phase RolloutPhase `json:"phase"`

	// began is when the rollout of the version began.
	// +required
	Began metav1.Time `json:"began"`

	// since is when the phase began.
	// +required
	Since metav1.Time `json:"since"`

	// waves is the number of waves in whose members the version is in effect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Waves int32 `json:"waves,omitempty"`

	// message is why the version is in its phase, or waits in it.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// evidence is how its verdicts differ from those of the version in effect.
	// +optional
	Evidence *RolloutEvidence `json:"evidence,omitempty"`
}

// RolloutEvidence is how the verdicts of a version differ from those of the former
// one on all members.
type RolloutEvidence struct {
	// complete says that all that both versions read was read and evaluated, and that
	// unknown is 0. Before, the version is neither promoted nor taken back.
	// +optional
	Complete bool `json:"complete,omitempty"`

	// unknown is the number of subjects on which only one of the versions knows its
	// verdict, so that it cannot be said whether they differ. Of a version that has no former
	// one it is the number of its subjects while it knows none of its verdicts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int64 `json:"unknown,omitempty"`

	// subjects is the number of subjects of the version.
	// +required
	// +kubebuilder:validation:Minimum=0
	Subjects int64 `json:"subjects"`

	// new is the number of violations that only the version finds.
	// +required
	// +kubebuilder:validation:Minimum=0
	New int64 `json:"new"`

	// gone is the number of violations that only the former version finds.
	// +required
	// +kubebuilder:validation:Minimum=0
	Gone int64 `json:"gone"`

	// errors is the number of subjects on which evaluating the version fails, and
	// evaluating the former one does not.
	// +required
	// +kubebuilder:validation:Minimum=0
	Errors int64 `json:"errors"`

	// cost is the CPU time of its evaluations, in percent of the former version's.
	// It is not set while it is not known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Cost *int64 `json:"cost,omitempty"`
}

// SourceRolloutStatus is the rollout of a commit of a PolicySource.
type SourceRolloutStatus struct {
	// commit is the full hash of the commit.
	// +required
	Commit CommitHash `json:"commit"`

	// phase is how far the commit has come: no further than any of its policies.
	// +required
	Phase RolloutPhase `json:"phase"`

	// began is when the rollout began.
	// +required
	Began metav1.Time `json:"began"`

	// since is when the phase began.
	// +required
	Since metav1.Time `json:"since"`

	// policies is the number of policies that the commit changes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Policies int32 `json:"policies,omitempty"`

	// waiting is the number of these policies whose new version is not in effect in
	// all members.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Waiting int32 `json:"waiting,omitempty"`

	// message is what the rollout waits for, or why the commit was taken back.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// evidence is how the verdicts of packages without a FleetPolicy differ.
	// +optional
	Evidence *RolloutEvidence `json:"evidence,omitempty"`
}
