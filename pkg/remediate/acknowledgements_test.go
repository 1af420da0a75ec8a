package remediate_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_AcknowledgementsAreForWhatWaited: as many others are not allowed instead.
func TestDispatcher_AcknowledgementsAreForWhatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 2}}}
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		time.Sleep(2 * time.Second)
		h := a.halt(t)
		if got := f.states(); h.Plan == "" || got != "Halt Waiting 3" || f.state("b").Halts[0].Plan != h.Plan {
			t.Fatalf("halt %+v, plans: %s", h, got)
		}
		suspended := spec
		suspended.Suspend = true
		a.set(t, suspended, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		if err := a.Acknowledge("b", h.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		b.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 other"))
		failover(leadA, leadB)
		b.expect(t, "another one instead", "")
		again := b.halt(t)
		if again.ID == h.ID || again.Reason != v1alpha1.OverLimit {
			t.Errorf("halted: %+v", again)
		}
		if err := b.Acknowledge("b", again.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := b.written(); strings.Count(got, "@") != 3 {
			t.Errorf("acknowledged: %q", got)
		}
	})
}

// TestDispatcher_WhatMayHaveBeenWrittenIsNotFree: three targets may have been written by another policy
// when a process takes over, and were not. That they count lets none of them be written beyond the
// limit of the fleet that nobody has acknowledged.
func TestDispatcher_WhatMayHaveBeenWrittenIsNotFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		for _, name := range []string{"a", "b", "c"} {
			i := intents("1", "m1 "+name)[0]
			f.put(&i)
			f.record(t, &v1alpha1.Action{ObjectMeta: meta(name), Spec: v1alpha1.ActionSpec{
				Binding: "other", Verb: v1alpha1.Patch, Patch: `{"data":{"a":"b"}}`,
				Target: v1alpha1.Target{Member: "m1", APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name, UID: i.UID, ResourceVersion: "1"},
			}})
		}
		d := run(t, f, remediate.Options{Fleet: remediate.Limit{Count: 2}})
		time.Sleep(5 * time.Minute)
		for _, a := range f.actions() {
			if a.Status.Phase != v1alpha1.PhaseFailed {
				t.Fatalf("%s is %q", a.Name, a.Status.Phase)
			}
		}
		spec := remediate.RolloutSpec{Generation: "1"}
		d.set(t, spec, 20, intents("1", "m1 a"))
		time.Sleep(time.Second)
		if err := d.Acknowledge("b", d.halt(t).ID, "ann"); err != nil {
			t.Fatal(err)
		}
		d.expect(t, "acknowledged", "m1 a@5m1s")
		d.set(t, spec, 20, intents("1", "m1 b", "m1 c"))
		time.Sleep(time.Second)
		d.expect(t, "the others", "")
		if h := d.halt(t); h.Over == nil || h.Over.Scope != "fleet" || h.Over.Targets != 3 {
			t.Errorf("halted: %+v", h)
		}
		if err := d.Acknowledge("b", d.halt(t).ID, "ann"); err != nil {
			t.Fatal(err)
		}
		d.expect(t, "acknowledged, too", "m1 b@5m2s, m1 c@5m2s")
	})
}

// TestDispatcher_AcknowledgementsAreNotAddedUp: what one let pass is not written because another
// let as many others pass.
func TestDispatcher_AcknowledgementsAreNotAddedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, lead := replica(t, newFleet(), remediate.Options{})
		lead(true)
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 2}}}
		suspended := spec
		suspended.Suspend = true
		acknowledge := func(targets ...string) string {
			t.Helper()
			d.set(t, spec, 20, intents("1", targets...))
			time.Sleep(2 * time.Second)
			h := d.halt(t)
			d.set(t, suspended, 20, intents("1", targets...))
			if err := d.Acknowledge("b", h.ID, "ann"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return h.ID
		}
		acknowledge("m1 a", "m1 b", "m1 c", "m1 d")
		second := acknowledge("m1 a", "m1 b", "m1 other")
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c", "m1 other"))
		d.expect(t, "three, the other among them, or four without it", "")
		third := d.halt(t)
		if third.ID == second || third.Reason != v1alpha1.OverLimit || third.Exceeded[0].Targets != 4 {
			t.Errorf("halted: %+v", third)
		}
		if err := d.Acknowledge("b", third.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := d.written(); strings.Count(got, "@") != 4 {
			t.Errorf("acknowledged: %q", got)
		}
	})
}

// TestDispatcher_WhatIsCountedNeedsNoAcknowledgement: one more write of it uses nothing of a limit.
func TestDispatcher_WhatIsCountedNeedsNoAcknowledgement(t *testing.T) {
	for _, scope := range []string{"policy", "member", "fleet"} {
		t.Run(scope, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := remediate.Limit{Count: 2}
				spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: limit, MaxReversions: 10}}
				switch scope {
				case "member":
					spec.Limits.Policy, spec.Limits.Member = remediate.Limit{}, limit
				case "fleet":
					spec.Limits.Policy, spec.Limits.Fleet = remediate.Limit{}, limit
				}
				d := run(t, newFleet(), remediate.Options{})
				acknowledge := func(version string, writes int, targets ...string) {
					t.Helper()
					d.set(t, spec, 20, intents(version, targets...))
					time.Sleep(2 * time.Second)
					if err := d.Acknowledge("b", d.halt(t).ID, "ann"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Second)
					if got := d.written(); strings.Count(got, "@") != writes {
						t.Errorf("acknowledged: %q", got)
					}
				}
				d.set(t, spec, 20, intents("1", "m1 before"))
				time.Sleep(2 * time.Second)
				d.expect(t, "within the limit", "m1 before@0s")
				acknowledge("1", 3, "m1 a", "m1 b", "m1 c")
				acknowledge("1", 1, "m1 other")
				d.set(t, spec, 20, intents("2", "m1 before", "m1 a", "m1 other"))
				time.Sleep(2 * time.Second)
				if got := d.written(); strings.Count(got, "@") != 3 {
					st, _ := d.Status("b")
					t.Errorf("what has drifted is not written again: %q, halted: %+v", got, st.Halted)
				}
				acknowledge("2", 2, "m1 b", "m1 new")
			})
		})
	}
}

// TestDispatcher_HaltsAreAcknowledgedOnceTheyAreFrozen: not before it is known for what.
func TestDispatcher_HaltsAreAcknowledgedOnceTheyAreFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var away atomic.Bool
		away.Store(true)
		f.onHub = func(method, path string) *metav1.Status {
			if away.Load() && strings.Contains(path, "/plan") && method != "GET" {
				return failure(503, metav1.StatusReasonServiceUnavailable, "")
			}
			return nil
		}
		d := run(t, f, remediate.Options{})
		d.set(t, remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}, 20, intents("1", "m1 a", "m1 b"))
		h := d.halt(t)
		if err := d.Acknowledge("b", h.ID, "ann"); !errors.Is(err, remediate.ErrNotNow) {
			t.Errorf("acknowledged before it is recorded: %v", err)
		}
		time.Sleep(time.Minute)
		if err := d.Acknowledge("b", h.ID, "ann"); !errors.Is(err, remediate.ErrNotNow) || !strings.Contains(err.Error(), "no Plan can be made") {
			t.Errorf("it does not say why it is not recorded: %v", err)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if err := d.Acknowledge("b", h.ID, "ann"); err != nil {
			t.Error(err)
		}
		if got := d.written(); strings.Count(got, "@") != 2 {
			t.Errorf("acknowledged: %q", got)
		}
	})
}

// TestDispatcher_FindsThePlanOfAHalt that was recorded right before the process ended.
func TestDispatcher_FindsThePlanOfAHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		time.Sleep(2 * time.Second)
		h := a.halt(t)
		unnamed := f.state("b")
		unnamed.Halts[0].Plan = ""
		f.putState("b", unnamed)
		b.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		failover(leadA, leadB)
		time.Sleep(time.Second)
		if got := b.halt(t); got.ID != h.ID || got.Plan != h.Plan || h.Plan == "" || f.states() != "Halt Waiting 2" {
			t.Errorf("halt %+v, it was %+v, plans: %s", got, h, f.states())
		}
		if err := b.Acknowledge("b", h.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := b.written(); strings.Count(got, "@") != 2 {
			t.Errorf("acknowledged: %q", got)
		}
	})
}

// TestDispatcher_AmendsAfterAnAcknowledgedHalt: the Plan of a halt that was acknowledged under an
// earlier leader has no Approvals of its own, and keeps nothing from being planned.
func TestDispatcher_AmendsAfterAnAcknowledgedHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		spec := approved("1", 1)
		spec.Limits.Policy.Count = 1
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		time.Sleep(2 * time.Second)
		first := a.waiting(t)
		a.approve(first)
		if err := a.Acknowledge("b", a.halt(t).ID, "ann"); err != nil {
			t.Fatal(err)
		}
		if got := a.written(); strings.Count(got, "@") != 2 {
			t.Fatalf("acknowledged: %q", got)
		}
		time.Sleep(time.Minute)
		b.set(t, spec, 20, intents("1", "m1 c"))
		failover(leadA, leadB)
		b.approve(first)
		time.Sleep(time.Minute)
		if got := f.states(); !strings.Contains(got, "Amendment Waiting 1") {
			t.Errorf("plans: %s", got)
		}
	})
}
