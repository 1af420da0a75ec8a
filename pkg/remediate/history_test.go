package remediate_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_RemembersWhatHappenedToHalts: that one began and was acknowledged, by whom,
// and that a change of the policy ended another one, also of an earlier leader.
func TestDispatcher_RemembersWhatHappenedToHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}, Window: 100 * time.Hour}}
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		b.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		leadA(true)
		time.Sleep(2 * time.Second)
		first := a.halt(t)
		want := []v1alpha1.PolicyTransition{{Type: v1alpha1.HaltBegan, ID: first.ID, Reason: "OverLimit", Message: first.Message}}
		expectHistory(t, f, want)

		failover(leadA, leadB)
		if err := b.Acknowledge("b", first.ID, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		want = append(want, v1alpha1.PolicyTransition{Type: v1alpha1.HaltEnded, ID: first.ID, Reason: "OverLimit", By: "ann", Message: "the halt was acknowledged"})
		expectHistory(t, f, want)

		b.set(t, spec, 20, intents("1", "m1 c"))
		time.Sleep(2 * time.Second)
		second := b.halt(t)
		spec.Generation, spec.Limits.Policy.Count = "2", 5
		a.set(t, spec, 20, intents("1", "m1 c"))
		failover(leadB, leadA)
		want = append(want,
			v1alpha1.PolicyTransition{Type: v1alpha1.HaltBegan, ID: second.ID, Reason: "OverLimit", Message: second.Message},
			v1alpha1.PolicyTransition{Type: v1alpha1.HaltEnded, ID: second.ID, Reason: "OverLimit", Message: "the policy has been changed and its cause is gone"})
		expectHistory(t, f, want)
	})
}

// expectHistory compares the history on the hub, without its times, which do not decrease.
func expectHistory(t *testing.T, f *fleet, want []v1alpha1.PolicyTransition) {
	t.Helper()
	synctest.Wait()
	got := slices.Clone(f.state("b").History)
	for n := range got {
		if n > 0 && got[n].At.Time.Before(got[n-1].At.Time) || got[n].At.IsZero() {
			t.Errorf("transition %d is of %s", n, got[n].At)
		}
	}
	for n := range got {
		got[n].At = want[0].At
	}
	if !slices.Equal(got, want) {
		t.Errorf("history:\n%+v\nwant:\n%+v", got, want)
	}
}
