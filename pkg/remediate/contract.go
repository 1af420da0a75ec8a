package remediate

import (
	"errors"
	"fmt"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Contract is what a binding's corrections are held to.
type Contract struct {
	DryRun  bool // corrections are tried, never written
	Limits  Limits
	Waves   []Wave  // nil: all members at once
	Window  *Window // nil: always
	Suspend bool    // nothing is written
	// Generation changes with the policy and its binding: waves then begin anew.
	Generation string
}

// Wave is a group of members that is written to after others.
type Wave struct {
	Name    string
	Members map[string]bool // those that are in no earlier wave
	Soak    time.Duration   // how long what was written must stay healthy
	Require Requirement
	Timeout time.Duration // how long it may take to get healthy
}

// Requirement is what the health of written objects must be.
type Requirement uint8

// The requirements of a wave.
const (
	RequireHealthy     Requirement = iota // all are Healthy, or have no health
	RequireNotDegraded                    // none is Degraded
	RequireNothing
)

// Health is how an object does.
type Health uint8

// The health of an object.
const (
	Healthy Health = iota // or of a kind that has no health
	Progressing
	Degraded
)

func (c *Contract) validate() error {
	errs := []error{c.Limits.validate()}
	for _, w := range c.Waves {
		if w.Soak < 0 || w.Timeout < 0 {
			errs = append(errs, fmt.Errorf("wave %q: soak %v, timeout %v", w.Name, w.Soak, w.Timeout))
		}
	}
	return errors.Join(errs...)
}

// HaltReason is why nothing more is written of a binding.
type HaltReason string

// The reasons of halts.
const (
	OverLimit HaltReason = "OverLimit" // more targets than a limit allows
	Unhealthy HaltReason = "Unhealthy" // a wave did not pass its gate
	Fighting  HaltReason = "Fighting"  // corrections do not clear their violations
)

// Halt says why nothing more is written of a binding until somebody acknowledges.
type Halt struct {
	ID      string // what an acknowledgement names
	Reason  HaltReason
	Message string
	Since   time.Time
	Over    *Spent // the limit that was exceeded
}

// Acknowledgement says who has looked at a halt and lets writing go on.
type Acknowledgement struct {
	Halt string // its ID
	By   string // "" where nobody knows
	At   time.Time
}

// WavePhase is where a wave stands.
type WavePhase string

// The phases of a wave.
const (
	WaveWriting WavePhase = "Writing"
	WaveSoaking WavePhase = "Soaking" // nothing is left to write: health gate and soak time
	WaveDone    WavePhase = "Done"    // the last wave is through
)

// WaveStatus is the wave that is written to, or soaks.
type WaveStatus struct {
	Name      string
	Number    int // from 1
	Of        int
	Phase     WavePhase
	Since     time.Time
	Unhealthy int
}

// Status is where the corrections of a binding stand.
type Status struct {
	Halted  *Halt
	Waiting string // why nothing is written now, beside a halt; "" when it is
	Budget  []Spent
	Wave    *WaveStatus // nil without waves
	Pending int         // corrections that are wanted and not done
	Phases  map[Phase]int
	Targets map[policy.Ref]Outcome // of what is wanted
}

// Outcome is what came of the last try to correct a target.
type Outcome struct {
	Action  string // its name; it may not be recorded, where nothing was to be written
	Phase   Phase
	Message string
	At      time.Time
}
