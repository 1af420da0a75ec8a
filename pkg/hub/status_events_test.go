package hub

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// TestStatusRecorder_RecordsAStopOnce follows a FleetPolicy while all actions are stopped, through
// what else keeps it from writing: that it is held, as it is while a process that has
// just started takes the commit up, or only observes, is no end of the stop.
func TestStatusRecorder_RecordsAStopOnce(t *testing.T) {
	const stop = "by ann: an outage"
	recorder := &statusRecorder{
		events:       &Events{pending: map[eventKey]*pendingEvent{}, dropped: map[types.UID]int{}, triggered: make(chan struct{}, 1)},
		lastComplete: map[types.UID]*v1alpha1.FleetPolicyStatus{},
	}
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u1"}, Spec: v1alpha1.FleetPolicySpec{Mode: v1alpha1.Enforce}}
	held, free := enforce.EnforcementStatus{Mode: policy.Observe, ModeReason: "the commit is not active"}, enforce.EnforcementStatus{Mode: policy.Enforce, Complete: true}
	for _, step := range []struct {
		name        string
		mode        v1alpha1.Mode
		enforcement enforce.EnforcementStatus
		ready       bool
		stopped     string
		reason      string // of condition Enforcing
		events      []string
	}{
		{"enforcing", v1alpha1.Enforce, free, true, "", "Enforcing", nil},
		{"stopped", v1alpha1.Enforce, free, true, stop, "Stopped", []string{"Stopped"}},
		{"another process has not read it", v1alpha1.Enforce, held, false, stopUnknown, "NotReady", nil},
		{"nor that", v1alpha1.Enforce, held, true, stopUnknown, "Stopped", nil},
		{"a process of an earlier version has not read it", v1alpha1.Enforce, held, true, stopUnknownBefore, "Stopped", nil},
		{"held", v1alpha1.Enforce, held, true, stop, "Stopped", nil},
		{"still stopped", v1alpha1.Enforce, free, true, stop, "Stopped", nil},
		{"observing", v1alpha1.Observe, free, true, stop, "Observing", nil},
		{"observing, and not stopped", v1alpha1.Observe, free, true, "", "Observing", nil},
		{"stopped again", v1alpha1.Enforce, free, true, stop, "Stopped", []string{"Stopped"}},
		{"resumed, and held", v1alpha1.Enforce, held, true, "", "Held", []string{"Resumed"}},
		{"enforcing again", v1alpha1.Enforce, free, true, "", "Enforcing", nil},
	} {
		next := fp.Status.DeepCopy()
		ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Pending"}
		if step.ready {
			ready.Status, ready.Reason = metav1.ConditionTrue, "Bound"
		}
		fp.Spec.Mode = step.mode
		c := enforcingCondition(fp, step.enforcement, remediate.Status{}, false, step.ready, step.stopped)
		if c.Reason != step.reason {
			t.Errorf("%s: %s, want %s", step.name, c.Reason, step.reason)
		}
		setCondition(next, fp, ready)
		setCondition(next, fp, c)
		recorder.record(fp, next)
		var reasons []string
		for key := range recorder.events.pending {
			reasons = append(reasons, key.reason)
		}
		if !slices.Equal(reasons, step.events) {
			t.Errorf("%s: Events %q, want %q", step.name, reasons, step.events)
		}
		clear(recorder.events.pending)
		fp.Status = *next
	}
}

// TestStatusRecorder_RecordsOnceThatThereIsNoRoom: when the hub comes to have as many Actions as it
// may have, also where a process starts meanwhile.
func TestStatusRecorder_RecordsOnceThatThereIsNoRoom(t *testing.T) {
	recorder := &statusRecorder{
		events:       &Events{pending: map[eventKey]*pendingEvent{}, dropped: map[types.UID]int{}, triggered: make(chan struct{}, 1)},
		lastComplete: map[types.UID]*v1alpha1.FleetPolicyStatus{},
	}
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u1"}, Spec: v1alpha1.FleetPolicySpec{Mode: v1alpha1.Enforce}}
	for _, step := range []struct {
		name    string
		ready   bool
		waiting string
		events  int
	}{
		{"enforcing", true, "", 0},
		{"no room", true, remediate.WaitingForRoom, 1},
		{"still none", true, remediate.WaitingForRoom, 0},
		{"a process that starts", false, "", 0},
		{"which finds no room either", true, remediate.WaitingForRoom, 0},
		{"room", true, "", 0},
		{"none again", true, remediate.WaitingForRoom, 1},
	} {
		next := fp.Status.DeepCopy()
		ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Pending"}
		if step.ready {
			ready.Status, ready.Reason = metav1.ConditionTrue, "Bound"
		}
		setCondition(next, fp, ready)
		setCondition(next, fp, enforcingCondition(fp, enforce.EnforcementStatus{Mode: policy.Enforce, Complete: true}, remediate.Status{Waiting: step.waiting}, true, step.ready, ""))
		recorder.record(fp, next)
		n := 0
		for key, e := range recorder.events.pending {
			if n++; key.reason != "TooManyActions" || !e.warning || e.text != remediate.WaitingForRoom {
				t.Errorf("%s: Event %s: %s", step.name, key.reason, e.text)
			}
		}
		if n != step.events {
			t.Errorf("%s: %d Events, want %d", step.name, n, step.events)
		}
		clear(recorder.events.pending)
		fp.Status = *next
	}
}

// TestStatusRecorder_RecordsEvaluationErrorsOnce has a policy whose evaluations
// come to give no answer: of which objects, an Event does not say.
func TestStatusRecorder_RecordsEvaluationErrorsOnce(t *testing.T) {
	events := &Events{pending: map[eventKey]*pendingEvent{}, dropped: map[types.UID]int{}, triggered: make(chan struct{}, 1)}
	recorder := &statusRecorder{events: events, lastComplete: map[types.UID]*v1alpha1.FleetPolicyStatus{}}
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "hosts", UID: "1"}}
	update := func(h policy.Health) {
		next := &v1alpha1.FleetPolicyStatus{Conditions: []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue}, evaluatedCondition(&h, "")}}
		recorder.record(fp, next)
		fp.Status = *next
	}
	texts := func() (out []string) {
		for _, n := range events.pending {
			out = append(out, n.text)
		}
		events.pending = map[eventKey]*pendingEvent{}
		return out
	}
	gap := policy.Gap{Member: "fleet/b", Failure: "view v: fleet/b Ingress.networking.k8s.io tenant/secret: it contributes more than 262144 bytes"}
	for _, step := range []struct {
		health policy.Health
		want   []string
	}{
		{policy.Health{}, nil},
		{policy.Health{Failures: []policy.Gap{gap}}, []string{"ContributionFailed: see condition Evaluated"}},
		{policy.Health{Failures: []policy.Gap{gap, gap}}, nil},
		{policy.Health{Views: "view v: it holds too much", Failures: []policy.Gap{gap}}, []string{"ViewTooLarge: see condition Evaluated"}},
		{policy.Health{}, nil},
		{policy.Health{Failures: []policy.Gap{gap}}, []string{"ContributionFailed: see condition Evaluated"}},
	} {
		update(step.health)
		if got := texts(); !slices.Equal(got, step.want) {
			t.Errorf("health %+v: Events %q, want %q", step.health, got, step.want)
		}
	}
	if c := evaluatedCondition(&policy.Health{Failures: []policy.Gap{gap}}, ""); !strings.Contains(c.Message, "tenant/secret") || !strings.Contains(c.Message, `member "fleet/b"`) {
		t.Errorf("the condition names no object and no member: %q", c.Message)
	}
}
