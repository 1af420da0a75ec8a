// Package rollout decides when the next wave of a rollout begins, and when one has failed.
// It is a function of what is known now: it reads no clock and keeps nothing.
package rollout

import (
	"fmt"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// Wave is what a wave must pass.
type Wave struct {
	Name      string
	Soak      time.Duration // how long written objects must have been healthy
	Timeout   time.Duration // how long they may take to get healthy
	Require   v1alpha1.HealthRequirement
	MaxFailed int // percent of the wave's targets that may fail
}

// State is how far a rollout has come.
type State struct {
	Generation string
	Wave       int // from 0
	Phase      v1alpha1.WavePhase
	Since      time.Time // when the phase began
	Healthy    time.Time // since when all that was written is healthy; zero while it is not
	Began      time.Time
	Done       time.Time // when the last wave completed

	// Progressing is since when something is Progressing; zero while nothing is. It is not
	// recorded: the next leader waits as long once more.
	Progressing time.Time
}

// Begin returns the state of a rollout that begins.
func Begin(generation string, now time.Time) State {
	return State{Generation: generation, Phase: v1alpha1.WaveWriting, Since: now, Began: now}
}

// Facts are what is known of a wave now.
type Facts struct {
	// Any reports that the policy has, or has had, a target in any wave: without one, the
	// waves wait for the first.
	Any bool
	// Open is how many targets are neither written nor accounted for.
	Open int
	// Held is why the wave may have targets that are not known, or cannot be written: a
	// member that is away, paused or frozen, or has Unknown verdicts.
	Held string
	// NotYet is why the wave must not end, however little there is to write: it does not yet
	// have the intents of this generation.
	NotYet string
	// Targets is how many targets the wave has or has had; Failed how many of them ended for
	// good without being written.
	Targets, Failed int
	Health          Health
	// Effect is what has got worse in the members of the wave, "" for nothing.
	Effect string
}

// Health is that of all that was written.
type Health struct {
	Degraded    string // one that is, and why
	Unknown     string // one of which it is not known, and why
	Progressing int
	Unhealthy   int // how many are not healthy, or not known to be
	// Interrupted reports that something is not healthy any more that has been, or was
	// written since all was.
	Interrupted bool
}

// Step is what follows from a state and facts.
type Step struct {
	State State
	Halt  string // why the policy must be halted
	Held  string // why the wave does not go on
}

// Next returns the next step. Waves must not be empty.
func (s State) Next(waves []Wave, f *Facts, now time.Time) Step {
	if s.Phase == v1alpha1.WaveDone || s.Wave >= len(waves) {
		return Step{State: s}
	}
	w := &waves[s.Wave]
	s = s.observe(f, now)
	if halt := s.failure(w, f, now); halt != "" {
		return Step{State: s, Halt: fmt.Sprintf("wave %q: %s", w.Name, halt)}
	}
	if held := s.held(f); held != "" {
		return Step{State: s, Held: fmt.Sprintf("wave %q waits: %s", w.Name, held)}
	}
	if !f.Any || f.Open > 0 {
		return Step{State: s}
	}
	if s.Phase == v1alpha1.WaveWriting {
		s.Phase, s.Since = v1alpha1.WaveSoaking, now
	}
	switch {
	case f.Health.Unhealthy > 0 && f.Health.Unknown != "":
		return Step{State: s, Held: fmt.Sprintf("wave %q waits: the health of %s", w.Name, f.Health.Unknown)}
	case f.Health.Unhealthy > 0:
		return Step{State: s}
	case s.Healthy.IsZero():
		s.Healthy = now
	}
	if now.Before(s.Healthy.Add(w.Soak)) {
		return Step{State: s}
	}
	if s.Wave == len(waves)-1 {
		s.Phase, s.Since, s.Done = v1alpha1.WaveDone, now, now
		return Step{State: s}
	}
	s.Wave++
	s.Phase, s.Since, s.Healthy, s.Progressing = v1alpha1.WaveWriting, now, time.Time{}, time.Time{}
	return Step{State: s}
}

// observe updates since when things are as they are. What is written while a wave soaks is to
// soak, too; a retry that fails changes nothing.
func (s State) observe(f *Facts, now time.Time) State {
	if f.Health.Interrupted {
		s.Healthy = time.Time{}
	}
	switch {
	case f.Health.Progressing == 0:
		s.Progressing = time.Time{}
	case s.Progressing.IsZero():
		s.Progressing = now
	}
	return s
}

// failure returns why a wave has failed, which it may while it is being written.
func (s State) failure(w *Wave, f *Facts, now time.Time) string {
	switch {
	case f.Health.Degraded != "":
		return f.Health.Degraded
	case f.Failed*100 > w.MaxFailed*f.Targets:
		return fmt.Sprintf("%d of %d corrections failed, at most %d%% may", f.Failed, f.Targets, w.MaxFailed)
	case f.Effect != "":
		return f.Effect
	}
	if limit := max(w.Timeout, w.Soak); f.Open == 0 && f.Health.Progressing > 0 && !now.Before(s.Progressing.Add(limit)) {
		return fmt.Sprintf("%d objects are not healthy after %v", f.Health.Progressing, limit)
	}
	return ""
}

// held returns why a wave does not go on, or does not although nothing is left to write.
func (s State) held(f *Facts) string {
	if f.Any && f.Open == 0 && f.Held != "" {
		return f.Held
	}
	return f.NotYet
}

// Reached returns the last wave that may be written to: none after one that is not clean
// any more, in which something is open or was written and is not healthy. Once the rollout
// is older than its soaks, the order of waves ends.
func (s State) Reached(waves []Wave, clean func(wave int) bool, now time.Time) int {
	last := s.Wave
	if s.Phase == v1alpha1.WaveDone {
		last = len(waves) - 1
		soaks := time.Duration(0)
		for _, w := range waves {
			soaks += w.Soak
		}
		if !now.Before(s.Done.Add(soaks)) {
			return last
		}
	}
	for n := range last {
		if !clean(n) {
			return n
		}
	}
	return last
}
