package remediate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_TooManyRequirementsAreNotForGood: a PolicyState has room for ten. What is required
// beyond is said to be too much, and nothing is written, until what was required before is
// required again; meanwhile the state is recorded.
func TestDispatcher_TooManyRequirementsAreNotForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		set := func(required int32) {
			spec := approved("1", int64(required))
			spec.Approval.Required = []v1alpha1.ApprovalRequirement{{Required: required, ValidFor: &metav1.Duration{Duration: time.Duration(100-required) * time.Minute}}}
			d.set(t, spec, 20, intents("1", "m1 a"))
			time.Sleep(time.Minute)
		}
		for n := range int32(13) {
			set(n + 1)
		}
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "was changed too often") {
			t.Errorf("waiting %q", st.Waiting)
		}
		if n := len(f.state("b").Approval.Requirements); n != 10 {
			t.Errorf("%d requirements are recorded, the CRD has room for 10", n)
		}
		set(1)
		plan := d.waiting(t)
		d.approve(plan)
		d.expect(t, "what was required before, and is approved", "m1 a@14m0s")
		if k := f.state("b").Approval; len(k.Requirements) != 1 || k.Requirements[0].Required != 1 {
			t.Errorf("recorded %+v", k)
		}
	})
}
