package rollout

import (
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// TestState_ReachedIsInOrder: an earlier wave in which something is open again holds later ones,
// also after the rollout is done, until it is older than its soaks.
func TestState_ReachedIsInOrder(t *testing.T) {
	t.Parallel()
	waves := []Wave{{Name: "canary", Soak: time.Hour}, {Name: "rest", Soak: time.Hour}, {Name: "last"}}
	done := time.Unix(1e9, 0)
	for what, c := range map[string]struct {
		state State
		open  int // the wave that is not clean; -1 for none
		after time.Duration
		want  int
	}{
		"the first wave":             {State{Wave: 0}, -1, 0, 0},
		"the second":                 {State{Wave: 1}, -1, 0, 1},
		"its own targets":            {State{Wave: 1}, 1, 0, 1},
		"the first is open again":    {State{Wave: 2}, 0, 0, 0},
		"the second is open again":   {State{Wave: 2}, 1, 0, 1},
		"done":                       {State{Wave: 2, Phase: v1alpha1.WaveDone, Done: done}, -1, 0, 2},
		"done, and open again":       {State{Wave: 2, Phase: v1alpha1.WaveDone, Done: done}, 0, 2*time.Hour - 1, 0},
		"done for as long as it may": {State{Wave: 2, Phase: v1alpha1.WaveDone, Done: done}, 0, 2 * time.Hour, 2},
	} {
		if got := c.state.Reached(waves, func(wave int) bool { return wave != c.open }, done.Add(c.after)); got != c.want {
			t.Errorf("%s: wave %d is reached, want %d", what, got, c.want)
		}
	}
}
