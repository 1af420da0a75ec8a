package remediate_test

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_CountsWritesOfALateClock: what a leader has written whose clock was hours behind
// counts from when the hub has recorded it.
func TestDispatcher_CountsWritesOfALateClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		late := metav1.NewMicroTime(time.Now().Add(-2 * time.Hour))
		object := meta("b-1")
		object.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
		f.record(t, &v1alpha1.Action{
			ObjectMeta: object,
			Spec: v1alpha1.ActionSpec{
				Binding: "b", Verb: v1alpha1.Patch, Patch: `{"data":{"a":"b"}}`,
				Target: v1alpha1.Target{Member: "m1", APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "z", UID: "u", ResourceVersion: "1"},
			},
			Status: v1alpha1.ActionStatus{Phase: v1alpha1.PhaseSucceeded, StartedAt: &late, EndedAt: &late},
		})
		d := run(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Window: time.Hour, Policy: remediate.Limit{Count: 1}}}
		d.set(t, spec, 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "one was written within the hour", "")
		if h := d.halt(t); h.Reason != v1alpha1.OverLimit || h.Over.Targets != 2 {
			t.Errorf("halted by %+v", h)
		}
	})
}
