package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FleetPolicyStatus is what has come of a FleetPolicy. It is bounded; all results
// are in the query API. It is written only when something in it changes.
type FleetPolicyStatus struct {
	// ObservedGeneration is the metadata.generation that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Ready, Evaluated and Enforcing.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Origin is where the package was read.
	// +optional
	Origin *Origin `json:"origin,omitempty"`

	// Totals are over all members.
	// +optional
	Totals *Verdicts `json:"totals,omitempty"`

	// Members are those with something to say, the worst first.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Members []MemberVerdicts `json:"members,omitempty"`

	// MembersOmitted is how many members with something to say are not listed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MembersOmitted int32 `json:"membersOmitted,omitempty"`

	// Actions are counted by where they stand.
	// +optional
	Actions *ActionCounts `json:"actions,omitempty"`

	// Wave is the one that is written to, or soaks.
	// +optional
	Wave *WaveStatus `json:"wave,omitempty"`

	// Budget is where the limits stand, the one with the least left first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Budget []Budget `json:"budget,omitempty"`

	// Halted says why nothing more is written until somebody acknowledges.
	// +optional
	Halted *Halt `json:"halted,omitempty"`

	// Acknowledged is the last halt that was acknowledged.
	// +optional
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`
}

// Verdicts counts them.
type Verdicts struct {
	// Subjects that were judged: what percentages are of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Subjects int64 `json:"subjects"`

	// Violations, exempt ones not included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// Unknown verdicts: they rest on something that is not completely known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int64 `json:"unknown"`

	// Exempt violations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Exempt int64 `json:"exempt"`

	// Protected violations: those of objects that are never written.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Protected int64 `json:"protected"`

	// Errors are evaluations that failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Errors int64 `json:"errors"`
}

// MemberVerdicts counts the verdicts of one member.
type MemberVerdicts struct {
	// Name is <namespace>/<name> of the Cluster. Keys of views have none.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`

	Verdicts `json:",inline"`
}

// ActionCounts counts Actions by phase: those that exist still.
type ActionCounts struct {
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int64 `json:"pending"` // DryRunPassed and Writing included, unless in mode DryRun
	// +optional
	// +kubebuilder:validation:Minimum=0
	DryRunPassed int64 `json:"dryRunPassed"` // in mode DryRun
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int64 `json:"succeeded"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoOp int64 `json:"noOp"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int64 `json:"failed"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Superseded int64 `json:"superseded"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Contended int64 `json:"contended"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	Protected int64 `json:"protected"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	RolledBack int64 `json:"rolledBack"`
}

// WavePhase is where a wave stands.
// +kubebuilder:validation:Enum=Writing;Soaking;Done
type WavePhase string

// The phases of a wave.
const (
	WaveWriting WavePhase = "Writing" // its members are written to
	WaveSoaking WavePhase = "Soaking" // nothing is left to write, the health gate and soak time run
	WaveDone    WavePhase = "Done"    // the last wave is through
)

// WaveStatus is where the waves stand.
type WaveStatus struct {
	// Name of the wave.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Number of the wave, from 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// Of is how many waves there are.
	// +required
	// +kubebuilder:validation:Minimum=1
	Of int32 `json:"of"`

	// +required
	Phase WavePhase `json:"phase"`

	// Since is when Phase began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Unhealthy is how many of the written objects do not pass the gate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unhealthy int32 `json:"unhealthy,omitempty"`
}

// LimitScope is what a limit counts over.
// +kubebuilder:validation:Enum=Policy;Member;Fleet
type LimitScope string

// The scopes of limits.
const (
	PolicyScope LimitScope = "Policy"
	MemberScope LimitScope = "Member"
	FleetScope  LimitScope = "Fleet"
)

// Budget is where a limit stands.
type Budget struct {
	// +required
	Scope LimitScope `json:"scope"`

	// Member is the name of a limit's member.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Member string `json:"member,omitempty"`

	// Targets are those pending and, within the window, written.
	// +required
	// +kubebuilder:validation:Minimum=0
	Targets int64 `json:"targets"`

	// Allowed is how many there may be.
	// +required
	// +kubebuilder:validation:Minimum=0
	Allowed int64 `json:"allowed"`

	// Denominator is what a percentage is of.
	// +required
	// +kubebuilder:validation:Minimum=0
	Denominator int64 `json:"denominator"`
}

// HaltReason is why a policy is halted.
type HaltReason string

// Why a policy is halted.
const (
	OverLimit HaltReason = "OverLimit" // more targets than a limit allows
	Unhealthy HaltReason = "Unhealthy" // a wave did not pass its gate
	Fighting  HaltReason = "Fighting"  // corrections do not clear their violations
)

// Halt says why nothing more is written.
type Halt struct {
	// ID is what an acknowledgement names: the annotation federator.dev/acknowledge.
	// +required
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// Reason is a word in camel case: OverLimit, Unhealthy, Fighting.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason HaltReason `json:"reason"`

	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// Since is when it began.
	// +required
	Since metav1.Time `json:"since"`

	// Over is the limit that was exceeded.
	// +optional
	Over *Budget `json:"over,omitempty"`
}

// Acknowledgement says that somebody has looked at a halt, so that writing goes on
// and what was written before counts no more.
type Acknowledgement struct {
	// ID of the halt.
	// +required
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// By is who it was, as far as the hub's API server tells.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// +required
	At metav1.Time `json:"at"`
}
