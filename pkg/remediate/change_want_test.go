package remediate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/seed"
)

// TestAChangeIsAsAllOfIt: whoever tells how what is wanted differs has corrected what
// whoever tells all of it has.
func TestAChangeIsAsAllOfIt(t *testing.T) {
	start := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(start, 0)) //nolint:gosec // a mix, not a secret
		all, changes := newSchedule(t, Options{}), newSchedule(t, Options{})
		phase := func(i *Intent) (Phase, error) { // the same for both
			switch i.Remedy.Target.Name {
			case "a", "b":
				return Failed, nil
			case "c":
				return NoOp, nil
			}
			return Succeeded, nil
		}
		all.phase, changes.phase = phase, phase
		now := map[string]Intent{}
		of := Denominators{Total: 100}
		c := Contract{Limits: Limits{Policy: Limit{Count: 50}, Window: time.Hour}}
		changes.want(t, c, 100, nil)
		for step := range 120 {
			set, gone := map[string]Intent{}, map[string]bool{}
			for range rng.IntN(4) {
				key := fmt.Sprintf("m%d %c", 1+rng.IntN(2), 'a'+rune(rng.IntN(6)))
				if rng.IntN(3) == 0 {
					gone[key] = true
					delete(set, key)
				} else {
					set[key] = intents(fmt.Sprint(rng.IntN(3)), key)[0]
					delete(gone, key)
				}
			}
			maps.Copy(now, set)
			maps.DeleteFunc(now, func(key string, _ Intent) bool { return gone[key] })
			ready := rng.IntN(5) > 0
			if err := all.Want("b", c, of, slices.Collect(maps.Values(now)), ready); err != nil {
				t.Fatal(err)
			}
			targets := intents("1", slices.Collect(maps.Keys(gone))...)
			var refs []policy.Ref
			for _, i := range targets {
				refs = append(refs, i.Remedy.Target)
			}
			if err := changes.Change("b", c, of, slices.Collect(maps.Values(set)), refs, ready); err != nil {
				t.Fatal(err)
			}
			a, b := all.written(), changes.written()
			if a != b {
				t.Fatalf("step %d: told of changes %q was corrected, told all %q", step, b, a)
			}
			x, _ := all.Status("b")
			y, _ := changes.Status("b")
			if x.Pending != y.Pending || x.Waiting != y.Waiting || (x.Halted == nil) != (y.Halted == nil) || !maps.Equal(x.Phases, y.Phases) {
				t.Fatalf("step %d: told of changes it stands at %+v, told all at %+v", step, y, x)
			}
			if x.Halted != nil {
				for _, s := range []*schedule{all, changes} {
					st, _ := s.Status("b")
					if err := s.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
						t.Fatal(err)
					}
				}
			}
			// Of the bubble's clock, and never at the instant of another try.
			time.Sleep(time.Duration(rng.IntN(40))*time.Minute + 100*time.Millisecond)
		}
	})
}
