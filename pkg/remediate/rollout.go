package remediate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/window"
)

// RolloutSpec is how the corrections of a policy are rolled out.
type RolloutSpec struct {
	DryRun bool // nothing is written: a Plan has what members would answer
	Limits Limits
	Waves  []Wave  // nil: all members at once
	Window *Window // nil: always
	// CeilingWindow is that of the source's ceiling: both must be open. nil: always.
	CeilingWindow *Window
	Suspend       bool // nothing is written
	// Generation is a digest of the package, its parameters and the policy's spec: where it
	// changes, the waves restart.
	Generation string
	Source     string // the PolicySource of the package, "" for none
	Ceiling    string // which of the source's ceilings the intents keep to, as in Options.Ceiling
	// Commit and Path are where the source has the package, Digests of what the generation
	// was made from: Plans show them.
	Commit, Path string
	Digests      v1alpha1.PlanDigests
	Approval     ApprovalTerms
	// External names the external documents that the intents follow from, "" for none: processes that have others say so, and
	// nothing is written until they agree.
	External string
	// Replaces is what the generation takes the place of, wave by wave; nil: nothing.
	Replaces *Replaced
}

// Replaced is a generation that is in effect where the new one is not yet. Its intents are Former:
// they are written as far as its own waves had come, whatever wave of the new one has begun.
type Replaced struct {
	Generation string
	// Promoted is how many waves have intents of the new generation: no later one ends, however little
	// there is to write. Those of others are Former.
	Promoted int
}

// replacesAlike reports whether Former intents may be written alike.
func (s *RolloutSpec) replacesAlike(o *RolloutSpec) bool {
	if s.Generation != o.Generation || s.Source != o.Source || (s.Replaces == nil) != (o.Replaces == nil) {
		return false
	}
	return s.Replaces == nil || s.Replaces.Generation == o.Replaces.Generation
}

// origin returns where the package is from, nil where it is built in.
func (s *RolloutSpec) origin() *v1alpha1.Origin {
	if s.Source == "" {
		return nil
	}
	return &v1alpha1.Origin{Source: s.Source, Commit: v1alpha1.CommitHash(s.Commit), Path: s.Path}
}

// Window is when corrections may be written; nil: always.
type Window = window.Window

// NewWindow returns a window that opens by a schedule (five fields, as in crontab(5)) in a
// time zone of the IANA database, for a duration.
func NewWindow(schedule string, duration time.Duration, zone string) (*Window, error) {
	return window.New(schedule, duration, zone)
}

// Wave is a group of members that is written to after the groups before it.
type Wave struct {
	Name    string
	Members map[string]bool // those that are in no earlier wave
	Soak    time.Duration   // how long written objects must stay healthy
	Require v1alpha1.HealthRequirement
	Timeout time.Duration // how long written objects may take to get healthy
	// MaxFailed is how many percent of the wave's targets may end Failed, Contended or
	// Superseded for good.
	MaxFailed int
	// Effect is the wave's own gate on its effect, Ceiling that of the wave of the source's
	// ceiling that it is part of. nil: none.
	Effect, Ceiling *EffectGate
}

// gates returns the gates on the effect.
func (w *Wave) gates() (out []EffectGate) {
	for _, g := range []*EffectGate{w.Effect, w.Ceiling} {
		if g == nil {
			continue
		}
		of := *g
		if of.Members == nil {
			of.Members = w.Members
		}
		out = append(out, of)
	}
	return out
}

// EffectGate is what must not get worse in the members of a wave from its begin on.
type EffectGate struct {
	Policies []string        // whose violations must not become more
	Unknown  bool            // Unknown verdicts must not either, of these policies and the wave's own
	Members  map[string]bool // nil: those of the wave
}

// policies returns those whose verdicts count, for a wave of a policy.
func (g *EffectGate) policies(own string) []string {
	out := slices.Clone(g.Policies)
	if g.Unknown && !slices.Contains(out, own) {
		out = append(out, own)
	}
	slices.Sort(out)
	return out
}

// Verdicts are how many subjects of a member violate a policy, and of how many that is not
// known.
type Verdicts struct{ Violations, Unknown int }

// Written is a target as a correction has left it.
type Written struct {
	Target policy.Ref
	// ResourceVersion is that of the target after the write: what is known of an older state
	// says nothing about its health. "" where the member has not returned any.
	ResourceVersion string
	Deleted         bool // by a correction that deletes
}

// Health is the health of an object, and why it is not Healthy.
type Health struct {
	Status HealthStatus
	Why    string
}

// HealthStatus is whether an object is healthy.
type HealthStatus uint8

// Whether an object is healthy.
const (
	// Unknown is the health of an object of which too little is known: its scope is not
	// Synced and fresh, or has not reached the version that was written, or the index does
	// not hold the fields that show it.
	Unknown HealthStatus = iota
	Healthy              // or of a kind that has no health, or gone
	Progressing
	Degraded
)

func (s *RolloutSpec) validate() error {
	errs := []error{s.Limits.validate()}
	for _, w := range s.Waves {
		if w.Soak < 0 || w.Timeout < 0 || w.MaxFailed < 0 || w.MaxFailed > 100 {
			errs = append(errs, fmt.Errorf("wave %q: soak %v, timeout %v, %d%% failed", w.Name, w.Soak, w.Timeout, w.MaxFailed))
		}
	}
	return errors.Join(errs...)
}

// WaveStatus is the wave that is written to, or soaks.
type WaveStatus struct {
	Generation string // that the waves are of: another one than the spec's until its own begin

	Name      string
	Number    int // from 1
	Of        int
	Phase     v1alpha1.WavePhase
	Since     time.Time
	Unhealthy int
}

// Status.Waiting outside the window in which a policy, or its source, may write.
const (
	WaitingForWindow        = "the window is closed"
	WaitingForCeilingWindow = "the window of the source's ceiling is closed"
)

// Status is the status of a policy's corrections.
type Status struct {
	Halted  *Halt // the oldest halt
	Halts   []*Halt
	Waiting string // why nothing is written now, apart from a halt; "" when writing
	Budget  []BudgetUsage
	Wave    *WaveStatus                  // nil without waves
	Pending int                          // corrections that are pending
	Phases  map[v1alpha1.ActionPhase]int // of the outcomes of targets

	// Restored reports that halts and waves are as the hub has them: this process leads, and
	// has read them.
	Restored     bool
	Acknowledged *Acknowledgement // the last one

	Approval *v1alpha1.KeptApproval // what is required; nil: nothing
	Plans    []PlanInfo             // that wait, or are approved; the oldest first
	DryRun   *DryRunStatus          // nil unless the policy only tries its corrections
}
