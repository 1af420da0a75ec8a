package remediate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// replacing is generation 2 in the place of 1, which it has taken in some of the waves.
func replacing(spec remediate.RolloutSpec, promoted int) remediate.RolloutSpec {
	spec.Generation, spec.Replaces = "2", &remediate.Replaced{Generation: spec.Generation, Promoted: promoted}
	return spec
}

// former are intents of the version that is replaced.
func former(list []remediate.Intent) []remediate.Intent {
	for n := range list {
		list[n].Former, list[n].Version, list[n].Commit = true, "aaaa", "c1"
	}
	return list
}

// newer are intents of the version that replaces it, which writes something else.
func newer(list []remediate.Intent) []remediate.Intent {
	for n := range list {
		list[n].Version, list[n].Commit, list[n].Remedy.Patch = "bbbb", "c2", []byte(`{"data":{"a":"c"}}`)
	}
	return list
}

func (d *running) wave(t *testing.T) (remediate.WaveStatus, remediate.Status) {
	t.Helper()
	synctest.Wait()
	st, _ := d.Status("b")
	if st.Wave == nil {
		t.Fatalf("no wave: %+v", st)
	}
	return *st.Wave, st
}

// versions say what Actions are of, by target.
func (f *fleet) versions() string {
	var out []string
	for _, a := range f.actions() {
		out = append(out, fmt.Sprintf("%s %s: %s %s %s wave %d", a.Spec.Target.Member, a.Spec.Target.Name, a.Spec.Version, a.Spec.Generation, a.Spec.Origin.Commit, a.Spec.Wave))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// done has generation 1 roll out to both waves.
func (d *running) done(t *testing.T, spec remediate.RolloutSpec) {
	t.Helper()
	d.set(t, spec, 20, intents("1", "m1 x"))
	time.Sleep(time.Minute)
	if w, _ := d.wave(t); w.Phase != v1alpha1.WaveDone || w.Generation != "1" {
		t.Fatalf("wave %+v", w)
	}
	d.written()
}

// TestDispatcher_VersionsTakePlaceWaveByWave: the former version is written in all members, the new
// one as its waves allow, none of which ends before the version is in its members, and each of
// which may end without anything to write.
func TestDispatcher_VersionsTakePlaceWaveByWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		one := twoWaves("1", 5*time.Second)
		d.done(t, one)
		d.set(t, replacing(one, 0), 20, former(intents("1", "m1 a", "m2 b")))
		if got := d.written(); !strings.Contains(got, "m1 a@") || !strings.Contains(got, "m2 b@") {
			t.Errorf("the former version: corrected %q", got)
		}
		d.set(t, replacing(one, 0), 20, nil)
		time.Sleep(time.Minute)
		if w, st := d.wave(t); w.Generation != "2" || w.Number != 1 || w.Phase != v1alpha1.WaveWriting || st.Waiting != `wave "canary" waits: the new version is not in effect in its members yet` {
			t.Errorf("in no wave: %+v, waiting %q", w, st.Waiting)
		}
		list := slices.Concat(newer(intents("2", "m1 a")), former(intents("2", "m2 b")))
		d.set(t, replacing(one, 1), 20, list)
		if got := d.written(); !strings.Contains(got, "m1 a@") || !strings.Contains(got, "m2 b@") {
			t.Errorf("in the first wave: corrected %q", got)
		}
		d.set(t, replacing(one, 1), 20, nil)
		time.Sleep(time.Minute)
		if w, _ := d.wave(t); w.Number != 2 || w.Phase != v1alpha1.WaveWriting {
			t.Errorf("the first wave has ended: %+v", w)
		}
		d.set(t, replacing(one, 2), 20, nil)
		time.Sleep(time.Minute)
		if w, _ := d.wave(t); w.Number != 2 || w.Phase != v1alpha1.WaveDone {
			t.Errorf("the second wave, with nothing to write: %+v", w)
		}
		if got, want := d.versions(), "m1 a: aaaa 1 c1 wave 1, m1 a: bbbb 2 c2 wave 1, m1 x:  1  wave 1, m2 b: aaaa 1 c1 wave 2, m2 b: aaaa 1 c1 wave 2"; got != want {
			t.Errorf("Actions are of %s, want %s", got, want)
		}
		// Promoted, the rollout is done, also with the one wave that the policy has otherwise.
		two := one
		two.Generation, two.Waves = "2", one.Waves[:1]
		d.set(t, two, 20, newer(intents("3", "m1 a")))
		if got := d.written(); !strings.HasPrefix(got, "m1 a@") {
			t.Errorf("promoted: corrected %q", got)
		}
		if w, _ := d.wave(t); w.Phase != v1alpha1.WaveDone || w.Generation != "2" || w.Number != 1 {
			t.Errorf("promoted: %+v", w)
		}
		if got := d.state("b"); got.Replaced != nil || got.Rollout.Generation != "2" {
			t.Errorf("promoted: the hub has %+v", got)
		}
	})
}

// TestDispatcher_FormerVersionGoesNoFurther than its own waves had come, under any leader, and
// goes on there when the new version is taken back.
func TestDispatcher_FormerVersionGoesNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		one := twoWaves("1", time.Hour)
		for _, d := range []*running{a, b} {
			d.set(t, one, 20, intents("1", "m1 x"))
		}
		time.Sleep(2 * time.Second)
		a.written()
		list := former(intents("1", "m1 a", "m2 b"))
		a.set(t, replacing(one, 0), 20, list)
		if got := a.written(); !strings.HasPrefix(got, "m1 a@") || strings.Contains(got, "m2") {
			t.Errorf("while the first wave soaks: corrected %q", got)
		}
		a.set(t, replacing(one, 1), 20, list)
		time.Sleep(2 * time.Hour)
		if w, _ := a.wave(t); w.Number != 2 || w.Generation != "2" {
			t.Errorf("what is not written holds the waves: %+v", w)
		}
		a.expect(t, "the second wave of the new version has begun", "")
		if got := f.state("b").Replaced; got == nil || got.Generation != "1" || got.Wave != 1 || got.Reached != 1 || got.By != "2" {
			t.Errorf("the hub has %+v", got)
		}
		failover(leadA, leadB)
		b.set(t, replacing(one, 1), 20, former(intents("2", "m1 a", "m2 b")))
		if got := b.written(); !strings.HasPrefix(got, "m1 a@") || strings.Contains(got, "m2") {
			t.Errorf("the next leader: corrected %q", got)
		}
		c, leadC := replica(t, f, remediate.Options{})
		failover(leadB, leadC)
		c.set(t, replacing(one, 1), 20, former(intents("3", "m1 a", "m2 b")))
		if got := c.written(); !strings.HasPrefix(got, "m1 a@") || strings.Contains(got, "m2") {
			t.Errorf("a leader that has just started: corrected %q", got)
		}
		c.set(t, one, 20, intents("4", "m1 a", "m2 b"))
		if got := c.written(); !strings.HasPrefix(got, "m1 a@") || strings.Contains(got, "m2") {
			t.Errorf("taken back: corrected %q", got)
		}
		if w, _ := c.wave(t); w.Number != 1 || w.Generation != "1" {
			t.Errorf("taken back: %+v", w)
		}
		c.set(t, one, 20, intents("5", "m2 b"))
		time.Sleep(59 * time.Minute)
		c.expect(t, "it soaks again", "")
		time.Sleep(2 * time.Minute)
		if got := c.written(); !strings.HasPrefix(got, "m2 b@") {
			t.Errorf("it has soaked: corrected %q", got)
		}
		if got := f.state("b").Replaced; got != nil {
			t.Errorf("the hub keeps %+v", got)
		}
	})
}

// TestDispatcher_TakenBackToADoneRollout: the former generation is done still, under any leader.
func TestDispatcher_TakenBackToADoneRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		leadA(true)
		one := twoWaves("1", 0)
		a.done(t, one)
		a.set(t, replacing(one, 1), 20, newer(intents("1", "m1 a")))
		time.Sleep(2 * time.Second)
		a.written()
		b, leadB := replica(t, f, remediate.Options{})
		failover(leadA, leadB)
		b.set(t, one, 20, intents("2", "m2 b"))
		if got := b.written(); !strings.HasPrefix(got, "m2 b@") {
			t.Errorf("taken back: corrected %q", got)
		}
		if w, _ := b.wave(t); w.Phase != v1alpha1.WaveDone || w.Generation != "1" {
			t.Errorf("taken back: %+v", w)
		}
	})
}

// TestDispatcher_FormerVersionWithoutWaves is written everywhere, also in members of no wave; a
// leader that has just started, and finds nothing recorded, writes none of it.
func TestDispatcher_FormerVersionWithoutWaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		leadA(true)
		waves := replacing(twoWaves("1", time.Hour), 1)
		b, leadB := replica(t, f, remediate.Options{})
		b.set(t, waves, 20, former(intents("0", "m2 b")))
		a.set(t, remediate.RolloutSpec{Generation: "1"}, 20, intents("1", "m3 c"))
		time.Sleep(2 * time.Second)
		a.written()
		leadA(false)
		leadB(true)
		time.Sleep(2 * time.Second)
		b.expect(t, "it is not known that there were no waves", "")
		leadB(false)
		f.putState("b", v1alpha1.PolicyStateStatus{}) // as if it had never led
		leadA(true)
		time.Sleep(2 * time.Second)
		a.set(t, waves, 20, former(intents("2", "m2 b", "m3 c")))
		if got := a.written(); !strings.Contains(got, "m2 b@") || !strings.Contains(got, "m3 c@") {
			t.Errorf("corrected %q", got)
		}
		if got := f.state("b").Replaced; got == nil || got.Wave != 0 {
			t.Errorf("the hub has %+v", got)
		}
	})
}

// TestDispatcher_FormerVersionWithOtherWaves is written only where all members of a wave had been
// reached by its own.
func TestDispatcher_FormerVersionWithOtherWaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		one := twoWaves("1", time.Hour)
		d.set(t, one, 20, intents("1", "m1 x"))
		time.Sleep(2 * time.Second)
		d.written()
		other := replacing(one, 0)
		other.Waves = []remediate.Wave{{Name: "first", Members: map[string]bool{"m2": true}}, {Name: "last", Members: map[string]bool{"m1": true}}}
		d.set(t, other, 20, former(intents("1", "m1 a", "m2 b")))
		time.Sleep(time.Minute)
		d.expect(t, "the first wave has a member that was not reached", "")
	})
}

// TestDispatcher_FormerVersionSaysNothingOfTheNewOne: what it has written, or cannot write, in a
// wave of the new version does not fail that, and does not make it wait once it has soaked.
func TestDispatcher_FormerVersionSaysNothingOfTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{Health: func(w remediate.Written) remediate.Health {
			if w.Target.Name == "ill" {
				return remediate.Health{Status: remediate.Degraded}
			}
			return remediate.Health{Status: remediate.Healthy}
		}})
		leadA(true)
		one := twoWaves("1", 0)
		a.done(t, one)
		f.onWrite = func(target string) *metav1.Status {
			if strings.Contains(target, "no") {
				return forbidden()
			}
			return nil
		}
		a.set(t, replacing(one, 0), 20, former(intents("1", "m1 ill", "m1 no")))
		time.Sleep(5 * time.Second)
		if got := a.written(); !strings.Contains(got, "m1 ill@") {
			t.Errorf("corrected %q", got)
		}
		leadA(false)
		time.Sleep(2 * time.Second)
		leadA(true) // it reads its Actions again
		time.Sleep(2 * time.Second)
		a.set(t, replacing(one, 1), 20, former(intents("1", "m1 no")))
		time.Sleep(time.Minute)
		if w, st := a.wave(t); st.Halted != nil || w.Number != 2 || w.Unhealthy != 0 {
			t.Errorf("%+v, halted %+v", w, st.Halted)
		}
	})
}

// TestDispatcher_FormerTargetsHoldTheirWave: a wave in which the former version has something to
// write does not end, and one in which it has not does.
func TestDispatcher_FormerTargetsHoldTheirWave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Value
		held.Store("")
		d := run(t, newFleet(), remediate.Options{Held: func(member string) error {
			if member == held.Load() {
				return remediate.ErrNotNow
			}
			return nil
		}})
		one := twoWaves("1", 0)
		d.done(t, one)
		held.Store("m1")
		d.set(t, replacing(one, 1), 20, former(intents("1", "m1 a")))
		time.Sleep(time.Minute)
		if w, _ := d.wave(t); w.Number != 1 {
			t.Errorf("something of the former version is open in the first wave: %+v", w)
		}
		held.Store("m2")
		d.set(t, replacing(one, 1), 20, former(intents("1", "m2 b")))
		time.Sleep(time.Minute)
		if w, _ := d.wave(t); w.Number != 2 {
			t.Errorf("something is open in the second wave: %+v", w)
		}
	})
}

// TestDispatcher_BothVersionsInOneMember: of a member whose wave has not begun, only what the former
// version requires is written; the order of names makes no difference.
func TestDispatcher_BothVersionsInOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		one := twoWaves("1", time.Hour)
		one.Waves[0].Soak, one.Waves[1].Soak = 0, 0
		d.done(t, one)
		one.Waves[0].Soak = time.Hour
		list := slices.Concat(newer(intents("1", "m1 n", "m2 a", "m2 z")), former(intents("1", "m2 b", "m2 y")))
		d.set(t, replacing(one, 2), 20, list)
		time.Sleep(time.Minute)
		if got := d.written(); strings.Count(got, "@") != 3 || !strings.Contains(got, "m1 n@") || !strings.Contains(got, "m2 b@") || !strings.Contains(got, "m2 y@") {
			t.Errorf("corrected %q", got)
		}
		list = slices.Concat(newer(intents("1", "m2 a", "m2 z")), former(intents("2", "m2 b")))
		d.set(t, replacing(one, 2), 20, list)
		time.Sleep(time.Hour + time.Minute)
		if got := d.written(); strings.Count(got, "@") != 3 || !strings.Contains(got, "m2 a@") || !strings.Contains(got, "m2 b@") || !strings.Contains(got, "m2 z@") {
			t.Errorf("after the first wave: corrected %q", got)
		}
	})
}

// TestDispatcher_OneBudgetForBothVersions: their targets are counted together.
func TestDispatcher_OneBudgetForBothVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		one := twoWaves("1", 0)
		one.Limits = remediate.Limits{Policy: remediate.Limit{Count: 2}}
		d.done(t, one)
		d.set(t, replacing(one, 1), 20, slices.Concat(newer(intents("1", "m1 a")), former(intents("1", "m2 b"))))
		time.Sleep(time.Minute)
		d.expect(t, "one was written before, which makes three", "")
		if st, _ := d.Status("b"); st.Halted == nil || st.Halted.Reason != v1alpha1.OverLimit {
			t.Errorf("status %+v", st)
		}
	})
}

// TestDispatcher_FailureOfAVersion is a halt of its generation, until which and after which the
// former one's is another.
func TestDispatcher_FailureOfAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ill atomic.Bool
		d := run(t, newFleet(), remediate.Options{Health: healthyBut(&ill, remediate.Degraded)})
		one := twoWaves("1", 0)
		d.done(t, one)
		ill.Store(true)
		d.set(t, replacing(one, 1), 20, slices.Concat(newer(intents("1", "m1 a")), former(intents("1", "m2 b"))))
		time.Sleep(time.Minute)
		w, st := d.wave(t)
		if st.Halted == nil || st.Halted.Reason != v1alpha1.Unhealthy || st.Halted.Generation != "2" || w.Generation != "2" || w.Number != 1 {
			t.Fatalf("%+v, halted %+v", w, st.Halted)
		}
		d.written()
		d.set(t, replacing(one, 1), 20, former(intents("2", "m2 b")))
		time.Sleep(time.Minute)
		d.expect(t, "halted, nothing of either version is written", "")
	})
}

// TestDispatcher_ApprovalOfTwoVersions: what was approved of the former version is written still, what
// was not waits for the Plan of the new one, as all of the new one does.
func TestDispatcher_ApprovalOfTwoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		leadA(true)
		one := approved("1", 1)
		one.Waves = twoWaves("1", 0).Waves
		a.set(t, one, 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Minute)
		first := a.waiting(t)
		a.approve(first)
		time.Sleep(time.Minute)
		if got := a.written(); strings.Count(got, "@") != 2 {
			t.Fatalf("approved: corrected %q", got)
		}
		two := approved("2", 2)
		two.Waves, two.Replaces = one.Waves, &remediate.Replaced{Generation: "1", Promoted: 1}
		list := func(version string) []remediate.Intent { // of the new version, what was approved of the former one
			return slices.Concat(intents(version, "m1 a"), former(intents(version, "m2 b", "m2 c")))
		}
		a.set(t, two, 20, list("2"))
		time.Sleep(time.Minute)
		if got := a.written(); !strings.HasPrefix(got, "m2 b@") || strings.Contains(got, ",") {
			t.Errorf("approved of the former version: corrected %q", got)
		}
		b, leadB := replica(t, f, remediate.Options{})
		failover(leadA, leadB)
		b.approve(first)
		b.set(t, two, 20, list("3"))
		time.Sleep(time.Minute)
		if got := b.written(); !strings.HasPrefix(got, "m2 b@") || strings.Contains(got, ",") {
			t.Errorf("by another leader: corrected %q", got)
		}
		second := b.waiting(t)
		if second.Generation != "2" || second.Targets != 2 {
			t.Errorf("the Plan of the new version: %+v", second)
		}
		b.approve(first, second)
		time.Sleep(time.Minute)
		if got := b.written(); !strings.Contains(got, "m1 a@") || !strings.Contains(got, "m2 c@") {
			t.Errorf("both are approved: corrected %q", got)
		}
		// Promoted, the former one's Plan approves nothing.
		two.Replaces = nil
		b.set(t, two, 20, intents("4", "m2 b"))
		time.Sleep(time.Minute)
		b.expect(t, "promoted", "")
	})
}

// TestDispatcher_ANameForBothVersions: the same write has one Action, whichever version requires it.
func TestDispatcher_ANameForBothVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		one := twoWaves("1", 0)
		d.done(t, one)
		d.set(t, replacing(one, 0), 20, former(intents("1", "m1 a")))
		time.Sleep(time.Minute)
		d.written()
		same := intents("1", "m1 a")
		same[0].Version = "bbbb"
		if err := d.SetIntents("b", replacing(one, 1), remediate.Totals{Fleet: 20}, same, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		d.expect(t, "it is written already", "")
	})
}
