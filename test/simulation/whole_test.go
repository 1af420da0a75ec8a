package simulation

import (
	"slices"
	"testing"
	"time"
)

// Whatever fails, whole processes stay within the bounds of corrections, and say what is so.
func TestWhole_StaysWithinItsBounds(t *testing.T) {
	for seed := *first; seed < *first+max(*count, 3); seed++ {
		if *one != 0 {
			seed = *one
		}
		start := time.Now()
		r := RunWhole(t, seed)
		t.Log(seed, r.Steps, time.Since(start))
		if r.Failure != nil || *one != 0 {
			t.Log(r)
		}
		if r.Failure != nil {
			t.Error(seed, r.Failure)
		}
		if *one != 0 {
			return
		}
	}
}

// A seed gives the same history each time.
func TestRunWhole_ASeedReproducesItsHistory(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		want := RunWhole(t, seed)
		for range 3 {
			if got := RunWhole(t, seed); !slices.Equal(got.History, want.History) {
				t.Fatalf("seed %d: two histories:\n%v\n%v", seed, want, got)
			}
		}
	}
}
