package remediate_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// ceilings says which ceiling sources have.
type ceilings struct{ now atomic.Value }

func (c *ceilings) get(source string) string {
	if now, ok := c.now.Load().(string); ok && source == "git" {
		return now
	}
	return ""
}

// TestDispatcher_ChangedCeilingHolds: nothing is sent for what was planned under another ceiling, not
// even what had begun; what is planned under the new one is.
func TestDispatcher_ChangedCeilingHolds(t *testing.T) {
	for what, begun := range map[string]bool{"between plan and write": true, "before the plan": false} {
		synctest.Test(t, func(t *testing.T) {
			f, c := newFleet(), &ceilings{}
			c.now.Store("first")
			if begun {
				f.onDryRun = func(string) { c.now.Store("second") }
			} else {
				c.now.Store("second")
			}
			d := run(t, f, remediate.Options{Ceiling: c.get})
			list := intents("1", "m1 a")
			list[0].Source = "git"
			spec := remediate.RolloutSpec{Source: "git", Ceiling: "first"}
			d.set(t, spec, 20, list)
			time.Sleep(time.Minute)
			d.expect(t, what, "")
			if st, _ := d.Status("b"); !strings.Contains(st.Waiting, `the ceiling of source "git" has changed`) || st.Pending != 1 {
				t.Errorf("%s: %+v", what, st)
			}
			spec.Ceiling = "second"
			if err := d.SetIntents("b", spec, remediate.Totals{}, list, true); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			d.expect(t, what+", planned again", "m1 a@1m0s")
		})
	}
}

// TestDispatcher_CeilingWindowHolds: both windows must be open.
func TestDispatcher_CeilingWindowHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		window := func(schedule string) *remediate.Window {
			w, err := remediate.NewWindow(schedule, 2*time.Hour, "UTC")
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		d := run(t, newFleet(), remediate.Options{})
		spec := remediate.RolloutSpec{Window: window("0 3 * * *"), CeilingWindow: window("0 4 * * *")}
		d.set(t, spec, 20, intents("1", "m1 a"))
		d.expect(t, "at midnight", "")
		if st, _ := d.Status("b"); st.Waiting != remediate.WaitingForWindow {
			t.Errorf("at midnight: %q", st.Waiting)
		}
		time.Sleep(3*time.Hour + time.Minute)
		d.expect(t, "in the policy's window", "")
		if st, _ := d.Status("b"); st.Waiting != remediate.WaitingForCeilingWindow {
			t.Errorf("in the policy's window: %q", st.Waiting)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		d.expect(t, "in both", "m1 a@4h0m0s")
	})
}

// TestDispatcher_IgnoredOptOut: the annotation protects from policies that honour it, and
// what is protected anyway stays so.
func TestDispatcher_IgnoredOptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.marks = `,"annotations":{"federator.dev/protect":""}`
		d := run(t, f, remediate.Options{Protection: remediate.Protection{Namespaces: []string{"vault"}}})
		list := intents("1", "m1 a", "m1 b")
		list[1].Remedy.Target.Namespace = "vault"
		d.set(t, remediate.RolloutSpec{}, 20, list)
		d.expect(t, "honoured", "")
		if st, _ := d.Status("b"); st.Phases[v1alpha1.PhaseProtected] != 2 {
			t.Errorf("honoured: %+v", st)
		}
		for n := range list {
			list[n].IgnoreOptOut = true
		}
		d.set(t, remediate.RolloutSpec{}, 20, list)
		d.expect(t, "ignored", "m1 a@0s")
		if st, _ := d.Status("b"); st.Phases[v1alpha1.PhaseProtected] != 1 || st.Phases[v1alpha1.PhaseSucceeded] != 1 {
			t.Errorf("ignored: %+v", st)
		}
	})
}

// TestDispatcher_CeilingEffectLooksAtItsMembers: a wave of the policy that is part of one of
// the ceiling halts, too, when other members of that get worse.
func TestDispatcher_CeilingEffectLooksAtItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var violations atomic.Int64
		d := run(t, newFleet(), remediate.Options{Verdicts: func(string) map[string]remediate.Verdicts {
			return map[string]remediate.Verdicts{"m1": {}, "m2": {Violations: int(violations.Load())}}
		}})
		spec := twoWaves("1", time.Hour)
		spec.Waves[0].Effect = &remediate.EffectGate{Policies: []string{"slo"}}
		spec.Waves[0].Ceiling = &remediate.EffectGate{Policies: []string{"errors"}, Members: map[string]bool{"m1": true, "m2": true}}
		d.set(t, spec, 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(10 * time.Minute)
		if st, _ := d.Status("b"); st.Halted != nil {
			t.Fatalf("halted: %+v", st.Halted)
		}
		violations.Store(1)
		time.Sleep(time.Minute)
		if got := d.halt(t); !strings.Contains(got.Message, `policy "errors" has 1 violations in member m2, 0 when the wave began`) {
			t.Errorf("halted: %+v", got)
		}
	})
}
