package rollout

import (
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// Replaced is how far the waves of a generation had come when another one began to take its
// place. Wave is noWaves where it had none: it is written everywhere.
type Replaced struct {
	State

	By string // the other one
	// Reached is how many waves of the other one have only members that the former one had
	// reached.
	Reached int
}

// noWaves is the wave of a generation without waves.
const noWaves = -1

// Everywhere returns the state of a generation without waves.
func Everywhere(generation string) State { return State{Generation: generation, Wave: noWaves} }

// HasWaves reports whether the generation had waves.
func (r *Replaced) HasWaves() bool { return r.Wave != noWaves }

// Replace returns how far the former generation had come, among the waves of the one that takes
// its place. Both are the members of waves, in order; nil for the former one's: not known.
func (s State) Replace(by string, former, present []map[string]bool) Replaced {
	r := Replaced{State: s, By: by}
	if !r.HasWaves() || s.Phase == v1alpha1.WaveDone {
		return r
	}
	had := map[string]bool{}
	for n := 0; n <= s.Wave && n < len(former); n++ {
		for member := range former[n] {
			had[member] = true
		}
	}
	for r.Reached <= s.Wave && r.Reached < min(len(former), len(present)) && isWithin(present[r.Reached], had) {
		r.Reached++
	}
	return r
}

func isWithin(members, others map[string]bool) bool {
	for member := range members {
		if !others[member] {
			return false
		}
	}
	return true
}

// Reaches reports whether the former generation had reached a wave of the other one; none is of a
// member that is in no wave.
func (r *Replaced) Reaches(wave int, none bool) bool {
	if !r.HasWaves() {
		return true
	}
	return !none && (r.Phase == v1alpha1.WaveDone || wave < r.Reached)
}

// Resume returns the state of the former generation where the other one is taken back. Its wave
// soaks again: what has been written since is not what it was.
func (r *Replaced) Resume(now time.Time) State {
	s := r.State
	if s.Phase != v1alpha1.WaveDone {
		s.Phase, s.Since = v1alpha1.WaveWriting, now
	}
	s.Healthy, s.Progressing = time.Time{}, time.Time{}
	return s
}
