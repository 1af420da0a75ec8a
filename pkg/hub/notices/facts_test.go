package notices

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/notify"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func types(facts []notify.Fact) string {
	out := []string{}
	for _, f := range facts {
		out = append(out, fmt.Sprintf("%s %s ago", f.Transition, now.Sub(f.At)))
	}
	return fmt.Sprint(out)
}

// TestOfApproval: once it is known whether it counts, or is not for a while.
func TestOfApproval_WaitsForWhetherItCounts(t *testing.T) {
	for _, c := range []struct {
		age   time.Duration
		state v1alpha1.ApprovalState
		want  string
	}{
		{judged - time.Second, "", "[]"},
		{judged, "", "[ApprovalGiven 30s ago]"},
		{time.Second, v1alpha1.ApprovalCounts, "[ApprovalGiven 1s ago]"},
		{time.Second, v1alpha1.ApprovalIgnored, "[ApprovalGiven 1s ago]"},
		{maxAge + time.Second, v1alpha1.ApprovalCounts, "[]"},
	} {
		a := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-c.age))}, Status: v1alpha1.ApprovalStatus{State: c.state}}
		if got := types(ofApproval(a, now)); got != c.want {
			t.Errorf("%s old, state %q: %s, want %s", c.age, c.state, got, c.want)
		}
	}
}

func TestOfPlan_ByState(t *testing.T) {
	given := []v1alpha1.GivenApproval{{By: "b", At: metav1.NewTime(now.Add(-time.Hour))}, {By: "a", At: metav1.NewTime(now.Add(-2 * time.Hour))}}
	for _, c := range []struct {
		state     v1alpha1.PlanState
		approvals []v1alpha1.GivenApproval
		after     time.Duration
		want      string
	}{
		{"", nil, 0, "[]"},
		{v1alpha1.PlanFreezing, nil, 0, "[]"},
		{v1alpha1.PlanWaiting, given[:1], 0, "[PlanWaits 3h0m0s ago]"},
		{v1alpha1.PlanApproved, given, 0, "[PlanWaits 3h0m0s ago PlanApproved 1h0m0s ago]"},
		{v1alpha1.PlanDone, given, 0, "[PlanWaits 3h0m0s ago PlanApproved 1h0m0s ago]"},
		{v1alpha1.PlanExpired, given, 0, "[PlanWaits 3h0m0s ago PlanApproved 1h0m0s ago]"},
		{v1alpha1.PlanApproved, nil, 0, "[]"},
		{v1alpha1.PlanSuperseded, given, 0, "[]"},
		{v1alpha1.PlanDone, given, maxAge, "[]"},
	} {
		p := &v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-3 * time.Hour))}, Status: v1alpha1.PlanStatus{State: c.state, Approvals: c.approvals}}
		if got := types(ofPlan(p, now.Add(c.after))); got != c.want {
			t.Errorf("state %q: %s, want %s", c.state, got, c.want)
		}
	}
}
