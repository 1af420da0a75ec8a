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

// unresolved returns the intents for targets of which it is not known what they are.
func unresolved(targets ...string) []remediate.Intent {
	list := intents("", targets...)
	for n := range list {
		list[n].UID, list[n].Unresolved = "", "its judge knows it otherwise"
	}
	return list
}

// TestDispatcher_UnresolvedTargetsAreNotWritten, and count: for limits, and for the wave that they are in.
func TestDispatcher_UnresolvedTargetsAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Waves: []remediate.Wave{
			{Name: "first", Members: map[string]bool{"m1": true}, Timeout: time.Hour}, {Name: "second", Members: map[string]bool{"m2": true}, Timeout: time.Hour},
		}}
		d.set(t, spec, 10, append(intents("1", "m2 b"), unresolved("m1 a")...))
		time.Sleep(time.Minute)
		synctest.Wait()
		d.expect(t, "while it is not known what is in the first wave", "")
		if st, _ := d.Status("b"); st.Pending != 2 || !strings.Contains(st.Waiting, "m1") || !strings.Contains(st.Waiting, "otherwise") {
			t.Errorf("%d wait for %q", st.Pending, st.Waiting)
		}
		d.set(t, spec, 10, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Minute)
		synctest.Wait()
		d.expect(t, "when it is known", "m1 a@1m0s, m2 b@1m1s")
		spec.Generation, spec.Limits.Policy.Count = "2", 2
		d.set(t, spec, 10, append(intents("2", "m1 c"), unresolved("m1 d", "m1 e")...))
		time.Sleep(time.Second)
		synctest.Wait()
		d.expect(t, "beyond the limit", "")
		if st, _ := d.Status("b"); st.Halted == nil || st.Halted.Reason != v1alpha1.OverLimit {
			t.Errorf("what is not known counts for no limit: %+v", st)
		}
	})
}

// TestDispatcher_UnresolvedBetweenPlanAndWriteHolds the write, until it is known what the target is.
func TestDispatcher_UnresolvedBetweenPlanAndWriteHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var d *running
		var known atomic.Bool
		list := intents("1", "m1 a")
		f.onDryRun = func(string) {
			if known.Load() {
				return
			}
			now := intents("1", "m1 a")
			now[0].Unresolved = "its judge knows it otherwise"
			if err := d.UpdateIntents("b", remediate.RolloutSpec{Generation: "1"}, remediate.Totals{}, now, nil, true); err != nil {
				t.Error(err)
			}
		}
		d = run(t, f, remediate.Options{})
		d.set(t, remediate.RolloutSpec{Generation: "1"}, 1, list)
		time.Sleep(time.Minute)
		synctest.Wait()
		d.expect(t, "while it is not known", "")
		known.Store(true)
		if err := d.UpdateIntents("b", remediate.RolloutSpec{Generation: "1"}, remediate.Totals{}, intents("1", "m1 a"), nil, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		d.expect(t, "when it is", "m1 a@1m0s")
	})
}

// TestDispatcher_UnresolvedTargetsInPlans: none is shown for approval before it is known, and a dry run does not ask its member.
func TestDispatcher_UnresolvedTargetsInPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		d.set(t, tries("a"), 10, append(intents("1", "m1 a"), unresolved("m1 b")...))
		time.Sleep(time.Minute)
		synctest.Wait()
		f.expectDryRuns(t, "a dry run", "a Done: 1 passed, 0 refused, 0 invalid, 1 unreachable of 2")
		spec := remediate.RolloutSpec{Generation: generations["b"]}
		spec.Approval.Required = []v1alpha1.ApprovalRequirement{{Required: 1}}
		d.set(t, spec, 10, append(intents("1", "m1 a"), unresolved("m1 b")...))
		time.Sleep(time.Minute)
		synctest.Wait()
		targets := 0
		for _, p := range f.plans() {
			if p.Spec.Purpose == v1alpha1.PlanGeneration {
				targets += int(p.Spec.Targets)
			}
		}
		if targets != 1 {
			t.Errorf("%d targets wait for approval, want 1", targets)
		}
		d.expect(t, "what is not approved", "")
	})
}

// TestDispatcher_UnresolvedTargetsThatNobodyHasApproved use no limit, as while they are known: their judge may be away for a moment. Of
// what needs no approval they are a part all the same.
func TestDispatcher_UnresolvedTargetsThatNobodyHasApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := approved("1", 1)
		spec.Limits.Policy.Count = 2
		d.set(t, spec, 20, intents("1", "m1 a"))
		time.Sleep(2 * time.Second)
		d.approve(d.waiting(t))
		d.expect(t, "approved", "m1 a@2s")
		d.set(t, spec, 20, append(intents("2", "m1 a"), unresolved("m2 b", "m2 c", "m2 d")...))
		time.Sleep(time.Second)
		synctest.Wait()
		if st, _ := d.Status("b"); st.Halted != nil {
			t.Errorf("halted by what nobody has approved: %+v", st.Halted)
		}
		d.expect(t, "what is approved", "m1 a@2s")
	})
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		above := int32(10)
		spec := approved("1", 1)
		spec.Approval.Required[0].Above = &above
		d.set(t, spec, 20, append(intents("1", "m1 a"), unresolved("m2 b", "m2 c")...))
		time.Sleep(time.Minute)
		d.expect(t, "three of twenty, of which two are not known yet", "")
	})
}
