package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PolicyState is what federator remembers of a FleetPolicy of the same name
// across restarts and failovers: its halts, the progress of its waves, and what
// acknowledgements allow. It is written by federator alone, before the
// corrections that rest on it, and outlives the FleetPolicy: deleting a
// FleetPolicy and creating it again ends no halt. Once there has been no such
// FleetPolicy, and nothing that binds, for 30 days, it is deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=federator
// +kubebuilder:printcolumn:name="Halt",type=string,JSONPath=`.status.halts[0].id`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.halts[0].reason`
// +kubebuilder:printcolumn:name="Wave",type=string,JSONPath=`.status.rollout.waveName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.rollout.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.halts[0].message`
type PolicyState struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// status is what federator remembers. It is read-only for users.
	// +optional
	Status PolicyStateStatus `json:"status,omitzero"`
}

// PolicyStateList is a list of PolicyStates.
//
// +kubebuilder:object:root=true
type PolicyStateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PolicyState `json:"items"`
}

// RolloutGeneration names what is rolled out: it changes with the package of a
// policy, its parameters and its spec.
// +kubebuilder:validation:MaxLength=128
type RolloutGeneration string

// PolicyStateStatus is what federator remembers of a FleetPolicy.
type PolicyStateStatus struct {
	// halts are why nothing more is written for the policy, the oldest first. Each
	// ends when it is acknowledged, or by a change of the policy after which its
	// cause is gone.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=16
	Halts []RecordedHalt `json:"halts,omitempty"`

	// rollout is the progress of the waves.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// replaced is how far the waves of the generation had come whose place the present
	// one takes, wave by wave. It is not set if the present one takes no other's place.
	// +optional
	Replaced *ReplacedRollout `json:"replaced,omitempty"`

	// allowances are what acknowledgements of halts allow.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	Allowances []Allowance `json:"allowances,omitempty"`

	// acknowledged is the halt that was acknowledged last.
	// +optional
	Acknowledged *Acknowledgement `json:"acknowledged,omitempty"`

	// excused are targets whose corrections failed, and fail the present rollout no
	// more, since the halt was acknowledged: each the start of a hash.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=16
	Excused []string `json:"excused,omitempty"`

	// approval is which approval is required, whatever the spec says now. It is
	// not set if none is.
	// +optional
	Approval *KeptApproval `json:"approval,omitempty"`

	// longestWindow is the longest window of limits under which the policy has
	// written. Actions within it are not deleted.
	// +optional
	LongestWindow *metav1.Duration `json:"longestWindow,omitempty"`

	// history are the last transitions of the policy, the oldest first: what has
	// begun and ended. At most 50 are kept.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	History []PolicyTransition `json:"history,omitempty"`
}

// MaxTransitions is how many transitions the history of a PolicyState has at most.
const MaxTransitions = 50

// PolicyTransitionType is what has happened to a policy, in CamelCase.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
type PolicyTransitionType string

// The types of transitions.
const (
	HaltBegan PolicyTransitionType = "HaltBegan" // a halt was recorded
	HaltEnded PolicyTransitionType = "HaltEnded" // it was acknowledged, or its cause is gone
)

// PolicyTransition is something that has happened to a policy.
type PolicyTransition struct {
	// type is what has happened, in CamelCase, such as HaltBegan or HaltEnded.
	// Other types may be added.
	// +required
	Type PolicyTransitionType `json:"type"`

	// id is what it has happened to: the id of a halt, for HaltBegan and HaltEnded.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id"`

	// at is the time at which it happened.
	// +required
	At metav1.MicroTime `json:"at"`

	// reason is why it happened, in CamelCase: that of the halt, for HaltBegan and
	// HaltEnded.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason,omitempty"`

	// by is the user who made it happen, such as who acknowledged a halt. It is
	// not set if no user did, or the user is not known.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// message is a human-readable explanation.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// KeptApproval is which approval a policy requires: that of the generation that
// was approved last, and of each one since, so that lowering it needs the old one.
type KeptApproval struct {
	// requirements must all be met.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Requirements []ApprovalRequirement `json:"requirements,omitempty"`

	// generation is the one that was approved last.
	// +optional
	Generation RolloutGeneration `json:"generation,omitempty"`

	// observed is the version of the FleetPolicy that was seen last, as
	// <uid>/<metadata.generation>/<generation of the rollout>: between two of them
	// nobody has changed it unseen if they follow each other.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Observed string `json:"observed,omitempty"`

	// commits are those of the policy and its package that were seen last, of what
	// comes from git: the authors of what is newer are asked from there.
	// +optional
	// +listType=map
	// +listMapKey=of
	// +kubebuilder:validation:MaxItems=2
	Commits []KeptCommit `json:"commits,omitempty"`

	// authors are the users who have changed the policy since. Their Approvals do
	// not count.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	Authors []UserName `json:"authors,omitempty"`

	// authorsUnproven is whether there may be other authors: one person more must
	// approve.
	// +optional
	AuthorsUnproven bool `json:"authorsUnproven,omitempty"`
}

// KeptCommit is the commit of something that was seen last.
type KeptCommit struct {
	// of is what is from the commit: "FleetPolicy", or "package" and its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	Of string `json:"of"`

	// hash is that of the commit.
	// +required
	Hash CommitHash `json:"hash"`
}

// RecordedHalt is a halt as it was when it began.
type RecordedHalt struct {
	// id identifies this halt. To acknowledge the halt, set the annotation
	// federator.dev/acknowledge of the FleetPolicy to this value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`

	// reason is why the policy is halted, in CamelCase.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Reason HaltReason `json:"reason"`

	// message is a human-readable explanation of the halt.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// since is the time at which the policy was halted.
	// +required
	Since metav1.MicroTime `json:"since"`

	// generation is what was rolled out then.
	// +optional
	Generation RolloutGeneration `json:"generation,omitempty"`

	// over are the limits that were exceeded then. An acknowledgement allows these
	// many targets, for these limits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Over []ExceededLimit `json:"over,omitempty"`

	// targets are the objects that were fought over or unhealthy, or some of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=1024
	Targets []string `json:"targets,omitempty"`

	// with is the other policy of a fight.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	With string `json:"with,omitempty"`

	// plan is the name of the Plan with the targets that wait because of the halt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Plan string `json:"plan,omitempty"`
}

// ExceededLimit is a limit that was exceeded: a number of targets, or a
// percentage of subjects.
type ExceededLimit struct {
	// scope is what the limit applies to: Policy, Member or Fleet.
	// +required
	Scope LimitScope `json:"scope"`

	// member is the name of the member that the limit applies to. It is set only
	// if the scope is Member.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Member string `json:"member,omitempty"`

	// targets is the number of objects that counted against a number of targets.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Targets int64 `json:"targets,omitempty"`

	// subjects is the number of subjects that counted against a percentage.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Subjects int64 `json:"subjects,omitempty"`

	// allowed is how many the limit allows.
	// +required
	// +kubebuilder:validation:Minimum=0
	Allowed int64 `json:"allowed"`

	// denominator is the number of all subjects then.
	// +required
	// +kubebuilder:validation:Minimum=0
	Denominator int64 `json:"denominator"`
}

// Rollout is the progress of the waves of a policy.
type Rollout struct {
	// generation is what is rolled out.
	// +optional
	Generation RolloutGeneration `json:"generation,omitempty"`

	// wave is the position of the wave, starting at 1, as in the status of the
	// FleetPolicy.
	// +required
	// +kubebuilder:validation:Minimum=1
	Wave int32 `json:"wave"`

	// waveName is the name of the wave.
	// +optional
	// +kubebuilder:validation:MaxLength=127
	WaveName string `json:"waveName,omitempty"`

	// phase is the phase of the wave: Writing, Soaking or Done.
	// +required
	Phase WavePhase `json:"phase"`

	// since is the time at which the phase began.
	// +required
	Since metav1.MicroTime `json:"since"`

	// healthySince is the time since which everything that the wave has written
	// has been healthy. It is not set while something is not.
	// +optional
	HealthySince *metav1.MicroTime `json:"healthySince,omitempty"`

	// began is the time at which the rollout began.
	// +required
	Began metav1.MicroTime `json:"began"`

	// done is the time at which the last wave completed.
	// +optional
	Done *metav1.MicroTime `json:"done,omitempty"`

	// baseline are the verdicts in the members of the wave when it began, if it
	// has a gate on its effect.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Baseline []BaselineCount `json:"baseline,omitempty"`
}

// ReplacedRollout is how far the waves of a generation had come when another one began
// to take its place. Where the other one is not yet in effect, the former one is
// corrected as far as that, and no further; if the other one is taken back, its waves
// go on from there.
type ReplacedRollout struct {
	// generation is the former one.
	// +required
	Generation RolloutGeneration `json:"generation"`

	// wave is the position of the wave that it had come to, starting at 1. It is not
	// set if it had no waves.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Wave int32 `json:"wave,omitempty"`

	// began is the time at which its rollout began.
	// +optional
	Began *metav1.MicroTime `json:"began,omitempty"`

	// done is the time at which its last wave had completed.
	// +optional
	Done *metav1.MicroTime `json:"done,omitempty"`

	// by is the generation that takes its place, whose waves reached counts.
	// +optional
	By RolloutGeneration `json:"by,omitempty"`

	// reached is the number of waves of the other generation in whose members the
	// former one is corrected, if it was not done.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reached int32 `json:"reached,omitempty"`
}

// BaselineCount is how many subjects of a policy violated it in a member.
type BaselineCount struct {
	// policy is the name of the FleetPolicy.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy"`

	// member is the name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=317
	Member string `json:"member"`

	// violations is the number of violations.
	// +required
	// +kubebuilder:validation:Minimum=0
	Violations int64 `json:"violations"`

	// unknown is the number of subjects without a known verdict.
	// +required
	// +kubebuilder:validation:Minimum=0
	Unknown int64 `json:"unknown"`
}

// AllowanceScope is what an acknowledgement allows to exceed: a limit of the
// policy, of one member or of the fleet, or the health of what was written, or
// writes of objects that others revert.
// +kubebuilder:validation:Enum=Policy;Member;Fleet;Health;Fights
type AllowanceScope string

// The scopes of allowances that are not limits.
const (
	AllowHealth AllowanceScope = "Health" // what was written before is not checked any more
	AllowFights AllowanceScope = "Fights" // writes before are not counted any more
)

// Allowance is what an acknowledgement of a halt allows.
type Allowance struct {
	// halt is the id of the halt that was acknowledged.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Halt string `json:"halt"`

	// plan is the name of the Plan with the targets that may be written beyond the
	// limit, once each.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Plan string `json:"plan,omitempty"`

	// scope is what may be exceeded.
	// +required
	Scope AllowanceScope `json:"scope"`

	// member is the name of the member whose limit may be exceeded. It is set only
	// if the scope is Member.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Member string `json:"member,omitempty"`

	// generation is what may be rolled out beyond the limit.
	// +optional
	Generation RolloutGeneration `json:"generation,omitempty"`

	// targets is how many targets the limit allows instead, if it is a number of
	// targets.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Targets int64 `json:"targets,omitempty"`

	// subjects is how many subjects the limit allows instead, if it is a
	// percentage.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Subjects int64 `json:"subjects,omitempty"`

	// by is who acknowledged the halt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	By string `json:"by,omitempty"`

	// at is the time of the acknowledgement.
	// +required
	At metav1.MicroTime `json:"at"`

	// expires is the time from which nothing is allowed any more.
	// +required
	Expires metav1.MicroTime `json:"expires"`
}
