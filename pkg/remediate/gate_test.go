package remediate_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_GateHoldsBetweenPlanAndWrite: what happens after a correction has begun, and
// before its request is sent, holds it; so it does between two attempts.
func TestDispatcher_GateHoldsBetweenPlanAndWrite(t *testing.T) {
	waves := []remediate.Wave{{Name: "first", Members: map[string]bool{"m2": true}, Soak: time.Hour}, {Name: "second", Members: map[string]bool{"m1": true}}}
	for what, change := range map[string]func(d *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool){
		"suspended": func(_ *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			spec.Suspend = true
			return spec, true
		},
		"while policies are replaced": func(_ *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			return spec, false
		},
		"the window has closed": func(_ *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			time.Sleep(6 * time.Second)
			return spec, true
		},
		"its wave has not begun in the new generation": func(_ *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			spec.Generation, spec.Waves = "2", waves
			return spec, true
		},
		"all is stopped": func(d *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			d.SetStops(remediate.Stops{All: "by ann"})
			return spec, true
		},
		"another limit halts it": func(d *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			spec.Limits.Member.Count = 1
			return spec, true
		},
		"its policy is removed": func(d *running, spec remediate.RolloutSpec) (remediate.RolloutSpec, bool) {
			d.RemovePolicy("b")
			return spec, false
		},
	} {
		for _, retried := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { // begins at midnight
				window, err := remediate.NewWindow("0 0 * * *", 6*time.Second, "UTC")
				if err != nil {
					t.Fatal(err)
				}
				f := newFleet()
				var d *running
				list := intents("1", "m1 a", "m2 b", "m2 c")
				spec := remediate.RolloutSpec{Generation: "1", Window: window, Limits: remediate.Limits{PerMinute: 1}}
				changed := false
				apply := func(target string) {
					if target != "m1 a" || changed {
						return
					}
					changed = true
					spec, ready := change(d, spec)
					if err := d.SetIntents("b", spec, remediate.Totals{}, list, ready); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Second) // what follows from it is recorded
				}
				if retried {
					f.onWrite = func(target string) *metav1.Status {
						apply(target)
						return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "")
					}
				} else {
					f.onDryRun = apply
				}
				d = run(t, f, remediate.Options{})
				d.put(&list[0])
				if err := d.SetIntents("b", spec, remediate.Totals{}, list[:1], true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if st, _ := d.Status("b"); (st.Halted != nil) != (what == "another limit halts it") {
					t.Errorf("%s: halted: %+v", what, st.Halted)
				}
				want := ""
				if retried {
					want = "m1 a@0s"
				}
				d.expect(t, what, want)
			})
		}
	}
}

// TestDispatcher_GateAsksForTheLease: a lease that is lost between plan and write, a moment before
// anything else notices, holds the write. What else notices it may be as early: so it is many times.
func TestDispatcher_GateAsksForTheLease(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet()
			var once sync.Once
			var lead func(bool)
			f.onDryRun = func(string) { once.Do(func() { lead(false) }) }
			d, leads := replica(t, f, remediate.Options{})
			lead = leads
			lead(true)
			time.Sleep(2 * time.Second)
			d.set(t, remediate.RolloutSpec{Generation: "1"}, 10, intents("1", "m1 a"))
			time.Sleep(time.Minute)
			d.expect(t, "without the lease", "")
			lead(true)
			time.Sleep(time.Minute)
			if got := d.written(); got == "" {
				t.Error("nothing is corrected with the lease again")
			}
		})
	}
}
