package remediate_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// TestDispatcher_GateAsksForApproval: an Approval that is withdrawn between plan and write, a moment
// before Plans are reviewed, holds the write.
func TestDispatcher_GateAsksForApproval(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet()
			var withdraw func()
			var tried atomic.Bool
			f.onDryRun = func(string) {
				if !tried.Swap(true) {
					withdraw()
				}
			}
			d := run(t, f, remediate.Options{})
			withdraw = func() { d.approve() }
			d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
			time.Sleep(time.Minute)
			d.approve(d.waiting(t))
			time.Sleep(time.Minute)
			d.expect(t, "withdrawn", "")
			if !tried.Load() {
				t.Error("nothing was tried that was approved")
			}
		})
	}
}

// TestDispatcher_GateAsksWhetherThePastIsKnown: a lease that was away for a moment between plan
// and write may have been another process's, which may have halted the policy.
func TestDispatcher_GateAsksWhetherThePastIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var slow atomic.Bool
		var lead func(bool)
		f.onHub = func(_, path string) *metav1.Status {
			if slow.Load() && strings.HasSuffix(path, "/policystates") {
				time.Sleep(20 * time.Second)
			}
			return nil
		}
		var once sync.Once
		f.onDryRun = func(string) {
			once.Do(func() {
				slow.Store(true)
				lead(false)
				time.Sleep(2 * time.Second)
				lead(true)
				time.Sleep(2 * time.Second)
			})
		}
		d, leads := replica(t, f, remediate.Options{})
		lead = leads
		lead(true)
		time.Sleep(2 * time.Second)
		d.set(t, remediate.RolloutSpec{Generation: "1"}, 10, intents("1", "m1 a"))
		time.Sleep(15 * time.Second)
		d.expect(t, "while all that lasts is read again", "")
		time.Sleep(time.Minute)
		if got := d.written(); got == "" {
			t.Error("nothing is corrected once it is known")
		}
	})
}

// TestDispatcher_GateKeepsRetriesWithinTheRate: an attempt that failed has used its share.
func TestDispatcher_GateKeepsRetriesWithinTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.onWrite = func(string) *metav1.Status {
			return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "")
		}
		d := run(t, f, remediate.Options{Bounds: remediate.Bounds{WritesPerSecond: 0.1}})
		d.set(t, remediate.RolloutSpec{Generation: "1"}, 10, intents("1", "m1 a"))
		time.Sleep(9 * time.Second)
		if n := strings.Count(d.written(), "@"); n != 1 {
			t.Errorf("%d requests within 9 s, at one in 10 s", n)
		}
	})
}

// TestDispatcher_GateHoldsRollbacks: what stops everything stops a rollback that is under way, too,
// unless it was asked for while writes are stopped, and that does not help where corrections fail.
func TestDispatcher_GateHoldsRollbacks(t *testing.T) {
	stop := func(t *testing.T, d *running) { d.SetStops(remediate.Stops{All: "by ann"}) }
	fail := func(t *testing.T, d *running) {
		list := intents("1", "m2 x", "m2 y", "m2 z")
		for n := range list {
			list[n].Binding = "other"
			d.put(&list[n])
		}
		if err := d.SetIntents("other", remediate.RolloutSpec{}, remediate.Totals{Fleet: 20}, list, true); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
	}
	for _, c := range []struct {
		what         string
		happens      func(*testing.T, *running)
		whileStopped bool
		written      bool
	}{
		{"a stop", stop, false, false},
		{"a stop, while stopped", stop, true, true},
		{"failing corrections", fail, false, false},
		{"failing corrections, while stopped", fail, true, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				f.onWrite = func(target string) *metav1.Status {
					if strings.HasPrefix(target, "m2") {
						return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "")
					}
					return nil
				}
				var d *running
				var rollsBack atomic.Bool
				f.onDryRun = func(target string) {
					if target == "m1 a" && rollsBack.Swap(false) {
						c.happens(t, d)
					}
				}
				d = run(t, f, remediate.Options{
					Bounds:  remediate.Bounds{Failures: 1, FailureWindow: time.Hour},
					StopAll: func(context.Context, string) error { return errors.New("the hub is away") },
				})
				a := d.corrected(t, func(*remediate.Intent) {})
				rollsBack.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := d.RollBack(ctx, a.Name, remediate.RollbackRequest{WhileStopped: c.whileStopped, Reason: "r"})
				if got := strings.Contains(d.written(), "m1 a"); got != c.written {
					t.Errorf("the rollback was written: %t, want %t (%v)", got, c.written, err)
				}
			})
		})
	}
}
