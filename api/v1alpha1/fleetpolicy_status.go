package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FleetPolicyStatus is the observed status of a FleetPolicy. Its size is
// bounded: lists are cut, and complete results are available from the query
// API.
type FleetPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status was computed
	// from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the latest observations of the policy's state. Known
	// condition types are:
	//
	// - Ready: the policy is in effect as specified.
	// - Evaluated: all evaluations of the policy completed without an error.
	// - Enforcing: corrections may be written now; if not, the reason says why.
	// - Approved: what the policy would write needs no approval, or has it.
	// - Notifying: spec.notifications names only Notifications that the ceiling of
	//   the package's PolicySource allows. It is absent while that is empty.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// origin is where the Rego package was read from. It is not set for a package
	// that is built into federator.
	// +optional
	Origin *Origin `json:"origin,omitempty"`

	// totals are the verdict counts over all members.
	// +optional
	Totals *Verdicts `json:"totals,omitempty"`

	// members are the verdict counts of the members that have violations,
	// exemptions, errors or Unknown verdicts, most violations first. At most 100
	// members are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Members []MemberVerdicts `json:"members,omitempty"`

	// membersOmitted is the number of members that are not listed in members
	// because the list is full.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MembersOmitted int32 `json:"membersOmitted,omitempty"`

	// dryRun is what would be written, and what members answered. It is set only in
	// mode DryRun.
	// +optional
	DryRun *DryRunProgress `json:"dryRun,omitempty"`

	// actions are the numbers of existing Actions of this policy by phase.
	// +optional
	Actions *ActionCounts `json:"actions,omitempty"`

	// wave is the wave in progress: the one whose members are being corrected, or
	// which is soaking.
	// +optional
	Wave *WaveStatus `json:"wave,omitempty"`

	// budget is the usage of each limit, the limit with the least remaining first.
	// At most 20 limits are listed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Budget []Budget `json:"budget,omitempty"`

	// halted is set while the policy is halted: no corrections are written until
	// the halt is acknowledged.
	// +optional
	Halted *Halt `json:"halted,omitempty"`

	// approval is what waits for Approvals, and what has them. It is set only if
	// approval is required.
	// +optional
	Approval *ApprovalProgress `json:"approval,omitempty"`

	// rollout are the version in effect and the one that is to take its place,
	// where versions roll out.
	// +optional
	Rollout *PolicyRolloutStatus `json:"rollout,omitempty"`

	// versions are the last versions of the policy that took effect, the oldest
	// first; the last one is in effect. At most 20 are kept.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Versions []PolicyVersion `json:"versions,omitempty"`

	// acknowledged is the most recent halt that was acknowledged.
	// +optional
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`
}

// Verdicts are verdict counts.
type Verdicts struct {
	// subjects is the number of objects, members or view keys that were evaluated.
	// Percentages in limits are relative to it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Subjects int64 `json:"subjects"`

	// violations is the number of violations, not including exempt ones.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// unknown is the number of verdicts that are Unknown because they depend on
	// incomplete data.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int64 `json:"unknown"`

	// exempt is the number of exempt violations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Exempt int64 `json:"exempt"`

	// protected is the number of violations by protected objects, which federator
	// never changes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Protected int64 `json:"protected"`

	// errors is the number of evaluations that failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Errors int64 `json:"errors"`
}

// MemberVerdicts are the verdict counts of one member.
type MemberVerdicts struct {
	// name is the name of the member, which is the <namespace>/<name> of its
	// Cluster object. Verdicts about the keys of a view belong to no member and
	// are counted in totals only.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`

	Verdicts `json:",inline"`
}

// DryRunProgress is the newest dry run of a policy, and how far the next one has
// come.
type DryRunProgress struct {
	// plan is the name of the Plan that has the answers. It is not set before the
	// first dry run of this generation has ended.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Plan string `json:"plan,omitempty"`

	// at is the time at which that dry run ended.
	// +optional
	At *metav1.Time `json:"at,omitempty"`

	// targets is the number of targets of that Plan.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Targets int32 `json:"targets"`

	// answers are the numbers of these targets by the answers of their members.
	// +optional
	Answers DryRunCounts `json:"answers,omitzero"`

	// changed is the number of targets that have come, gone or got another remedy
	// since. They are in the next dry run, which begins 10 minutes after the last
	// one at the earliest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Changed int32 `json:"changed,omitempty"`

	// remaining is the number of targets of the dry run under way whose members are
	// still to be asked.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Remaining int32 `json:"remaining,omitempty"`
}

// ActionCounts are the numbers of existing Actions by phase.
type ActionCounts struct {
	// pending is the number of Actions that have not ended. It includes the phase
	// Writing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Pending int64 `json:"pending"`

	// succeeded is the number of Actions that were written.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Succeeded int64 `json:"succeeded"`

	// noOp is the number of Actions that would have changed nothing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoOp int64 `json:"noOp"`

	// failed is the number of Actions that were rejected or have run out of
	// attempts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int64 `json:"failed"`

	// superseded is the number of Actions whose target changed after it was
	// evaluated.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Superseded int64 `json:"superseded"`

	// contended is the number of Actions that conflicted with another field
	// manager.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Contended int64 `json:"contended"`

	// protected is the number of Actions whose target is protected.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Protected int64 `json:"protected"`

	// managed is the number of targets that a GitOps controller manages, and that are
	// not written therefore.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Managed int64 `json:"managed,omitempty"`

	// rolledBack is the number of Actions that were written and rolled back.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RolledBack int64 `json:"rolledBack"`
}

// WavePhase is the phase of a wave.
// +kubebuilder:validation:Enum=Writing;Soaking;Done
type WavePhase string

// The phases of a wave.
const (
	WaveWriting WavePhase = "Writing" // corrections are being written
	WaveSoaking WavePhase = "Soaking" // nothing is left to write; the health gate and the soak time run
	WaveDone    WavePhase = "Done"    // the last wave has completed
)

// WaveStatus is the progress of the waves.
type WaveStatus struct {
	// name is the name of the wave in progress. If the source's ceiling has waves,
	// it begins with the name of that wave.
	// +required
	// +kubebuilder:validation:MaxLength=127
	Name string `json:"name"`

	// number is the position of the wave, starting at 1: in spec.waves, or in the
	// waves of the source's ceiling with those of the spec in each of them.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// of is the total number of waves.
	// +required
	// +kubebuilder:validation:Minimum=1
	Of int32 `json:"of"`

	// phase is the phase of the wave: Writing while corrections are being written,
	// Soaking while the health gate and the soak time run, and Done after the last
	// wave has completed.
	// +required
	Phase WavePhase `json:"phase"`

	// since is the time at which the wave entered the phase.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// unhealthy is the number of written objects that do not pass the health gate.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unhealthy int32 `json:"unhealthy,omitempty"`
}

// LimitScope is what a limit applies to: the policy, one member or the fleet.
// +kubebuilder:validation:Enum=Policy;Member;Fleet
type LimitScope string

// The scopes of limits.
const (
	PolicyScope LimitScope = "Policy"
	MemberScope LimitScope = "Member"
	FleetScope  LimitScope = "Fleet"
)

// Budget is the usage of one limit.
type Budget struct {
	// scope is what the limit applies to: Policy, Member or Fleet.
	// +required
	Scope LimitScope `json:"scope"`

	// member is the name of the member that the limit applies to. It is set only
	// if the scope is Member.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Member string `json:"member,omitempty"`

	// targets is the number of objects that count against the limit: those to be
	// corrected, and those written within the limit's window.
	// +required
	// +kubebuilder:validation:Minimum=0
	Targets int64 `json:"targets"`

	// allowed is the maximum number of targets.
	// +required
	// +kubebuilder:validation:Minimum=0
	Allowed int64 `json:"allowed"`

	// denominator is the number of subjects that a percentage is relative to.
	// +required
	// +kubebuilder:validation:Minimum=0
	Denominator int64 `json:"denominator"`
}

// HaltReason is why a policy is halted.
type HaltReason string

// Reasons of halts.
const (
	OverLimit HaltReason = "OverLimit" // more objects would be changed than a limit allows
	Unhealthy HaltReason = "Unhealthy" // a wave did not pass its health gate
	Fighting  HaltReason = "Fighting"  // objects violate again after repeated corrections
)

// Halt describes why no more corrections are written.
type Halt struct {
	// id identifies this halt. To acknowledge the halt, set the annotation
	// federator.dev/acknowledge of the FleetPolicy to this value.
	// +required
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// reason is why the policy is halted, in CamelCase. Known reasons are:
	//
	// - OverLimit: more objects would be changed than a limit allows.
	// - Unhealthy: the objects written in a wave did not pass its health gate.
	// - Fighting: an object was corrected repeatedly and violates the policy
	//   again.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason HaltReason `json:"reason"`

	// message is a human-readable explanation of the halt.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is the time at which the policy was halted.
	// +required
	Since metav1.Time `json:"since"`

	// over is the limit that was exceeded, if the reason is OverLimit.
	// +optional
	Over *Budget `json:"over,omitempty"`
}

// Acknowledgement records that somebody has reviewed a halt. Corrections
// continue after it: if a limit was exceeded, the number of objects that
// exceeded it is accepted for one window.
type Acknowledgement struct {
	// id is the id of the halt that was acknowledged.
	// +required
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// by is who acknowledged the halt: the field manager of the annotation, as
	// recorded in managedFields.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// at is the time at which federator observed the acknowledgement.
	// +required
	At metav1.Time `json:"at"`
}

// MaxVersions is how many versions the status of a FleetPolicy has at most.
const MaxVersions = 20

// PolicyVersion is what a policy was evaluated as for a while. Another package,
// import or parameter makes another version; another mode, match or limit does not.
type PolicyVersion struct {
	// digest is the digest of the package, of what it imports, and of the
	// parameters.
	// +required
	Digest Digest `json:"digest"`

	// package is the digest of the package and of what it imports.
	// +optional
	Package Digest `json:"package,omitempty"`

	// since is the time from which the version was in effect.
	// +required
	Since metav1.Time `json:"since"`

	// generation is the metadata.generation of the FleetPolicy at that time.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// origin is where the package was read from. It is not set for a package that
	// is built into federator.
	// +optional
	Origin *Origin `json:"origin,omitempty"`

	// by is the owner of the key that signed the commit, if the package is another
	// one, or else who changed the FleetPolicy. It is not set if that is not known.
	// +optional
	By UserName `json:"by,omitempty"`

	// changes are the violations that the version made appear and vanish when it
	// took effect. They are not set if that was not observed, such as where it took
	// effect while federator was not running.
	// +optional
	Changes *VersionChanges `json:"changes,omitempty"`
}

// VersionChanges are what a version of a policy changed on the fleet as it was.
type VersionChanges struct {
	// appeared is the number of new violations.
	// +required
	// +kubebuilder:validation:Minimum=0
	Appeared int64 `json:"appeared"`

	// vanished is the number of violations that are no more.
	// +required
	// +kubebuilder:validation:Minimum=0
	Vanished int64 `json:"vanished"`

	// members is the number of members with either.
	// +required
	// +kubebuilder:validation:Minimum=0
	Members int32 `json:"members"`
}
