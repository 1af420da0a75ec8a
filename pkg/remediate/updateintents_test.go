package remediate_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/seed"
)

// TestDispatcher_UpdateIntentsEqualsSetIntents: a dispatcher that is given changes
// corrects the same as one that is given all intents each time.
func TestDispatcher_UpdateIntentsEqualsSetIntents(t *testing.T) {
	start := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(start, 0))         // a mix, not a secret
		refuse := func(target string) *metav1.Status { // the same for both
			if target[3] == 'a' || target[3] == 'b' {
				return forbidden()
			}
			return nil
		}
		all, changes := newFleet(), newFleet()
		all.onWrite, changes.onWrite = refuse, refuse
		setter, updater := run(t, all, remediate.Options{}), run(t, changes, remediate.Options{})
		current := map[string]remediate.Intent{}
		totals := remediate.Totals{Fleet: 100}
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 50}, Window: time.Hour}}
		updater.set(t, spec, 100, nil)
		for step := range 120 {
			set, gone := map[string]remediate.Intent{}, map[string]bool{}
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
			for key, i := range set {
				if all.put(&i); key[3] == 'c' {
					all.correct(&i)
				}
				if changes.put(&i); key[3] == 'c' {
					changes.correct(&i)
				}
			}
			maps.Copy(current, set)
			maps.DeleteFunc(current, func(key string, _ remediate.Intent) bool { return gone[key] })
			ready := rng.IntN(5) > 0
			if err := setter.SetIntents("b", spec, totals, slices.Collect(maps.Values(current)), ready); err != nil {
				t.Fatal(err)
			}
			targets := intents("1", slices.Collect(maps.Keys(gone))...)
			var refs []policy.Ref
			for _, i := range targets {
				refs = append(refs, i.Remedy.Target)
			}
			if err := updater.UpdateIntents("b", spec, totals, slices.Collect(maps.Values(set)), refs, ready); err != nil {
				t.Fatal(err)
			}
			a, b := setter.written(), updater.written()
			if a != b {
				t.Fatalf("step %d: UpdateIntents corrected %q, SetIntents %q", step, b, a)
			}
			x, _ := setter.Status("b")
			y, _ := updater.Status("b")
			if x.Pending != y.Pending || x.Waiting != y.Waiting || (x.Halted == nil) != (y.Halted == nil) || !maps.Equal(x.Phases, y.Phases) {
				t.Fatalf("step %d: after UpdateIntents the status is %+v, after SetIntents %+v", step, y, x)
			}
			if x.Halted != nil {
				for _, d := range []*running{setter, updater} {
					st, _ := d.Status("b")
					if err := d.Acknowledge("b", st.Halted.ID, "ann"); err != nil {
						t.Fatal(err)
					}
				}
			}
			// synctest time, and never at the instant of another retry.
			time.Sleep(time.Duration(rng.IntN(40))*time.Minute + 100*time.Millisecond)
		}
	})
}
