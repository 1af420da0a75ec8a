package transitions

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/history"
)

func keys(records []history.Record) (text []string) {
	for i := range records {
		if records[i].Key == "" {
			text = append(text, "none")
		}
		text = append(text, records[i].Key)
	}
	return text
}

// TestOfAction_KeysAreThoseOfThePhase and, where it may be entered again, of when it was.
func TestOfAction_KeysAreThoseOfThePhase(t *testing.T) {
	ended := metav1.NewMicroTime(time.UnixMicro(1_700_000_000_000_001))
	for phase, want := range map[v1alpha1.ActionPhase]string{
		"": "u/Pending", v1alpha1.PhasePending: "u/Pending", v1alpha1.PhaseWriting: "u/Pending u/Writing/why", v1alpha1.PhaseSucceeded: "u/Pending u/Succeeded",
		v1alpha1.PhaseNoOp: "u/Pending u/NoOp", v1alpha1.PhaseSuperseded: "u/Pending u/Superseded", v1alpha1.PhaseProtected: "u/Pending u/Protected",
		v1alpha1.PhaseFailed: "u/Pending u/Failed/1700000000000001", v1alpha1.PhaseContended: "u/Pending u/Contended/1700000000000001",
		v1alpha1.PhaseManaged: "u/Pending u/Managed/1700000000000001", v1alpha1.PhaseRolledBack: "u/Pending u/Succeeded u/RolledBack",
		"Later": "u/Pending u/Later/1700000000000001", // of a later version
	} {
		a := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: v1alpha1.ActionStatus{Phase: phase, Message: "why", EndedAt: &ended}}
		if got := strings.Join(keys(ofAction(a)), " "); got != want {
			t.Errorf("%q: %s, want %s", phase, got, want)
		}
	}
	if got := ofAction(&v1alpha1.Action{}); got != nil { // it could not be decoded
		t.Error(got)
	}
}

// TestOfState_HasHaltsOnce, those too that its history has lost.
func TestOfState_HasHaltsOnce(t *testing.T) {
	s := &v1alpha1.PolicyState{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u"}}
	s.Status.Halts = []v1alpha1.RecordedHalt{{ID: "a", Reason: "OverLimit", Message: "3 targets"}, {ID: "old", Reason: "Fighting"}}
	s.Status.History = []v1alpha1.PolicyTransition{
		{Type: v1alpha1.HaltEnded, ID: "lost", By: "ann"}, {Type: v1alpha1.HaltBegan, ID: "a", Reason: "OverLimit"}, {Type: "Other", ID: "x"},
	}
	got := ofState(s)
	if text := strings.Join(keys(got), " "); text != "u/HaltEnded/lost u/Halted/a u/Halted/old" {
		t.Error(text)
	}
	if got[0].By != "ann" || got[1].Policy != "tier" || got[1].Subject != "halt a" || got[2].Message != "Fighting" {
		t.Errorf("%+v", got)
	}
}

func TestOfPlan_IsApprovedByPeopleOnly(t *testing.T) {
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	for _, c := range []struct {
		state v1alpha1.PlanState
		by    []string
		want  string
	}{
		{v1alpha1.PlanWaiting, []string{"ann"}, "u/PlanMade"}, // not enough
		{v1alpha1.PlanApproved, nil, "u/PlanMade"},
		{v1alpha1.PlanApproved, []string{"ann"}, "u/PlanMade"}, // who else has is listed later
		{v1alpha1.PlanApproved, []string{"ann", "bob"}, "u/PlanMade u/Approved"},
		{v1alpha1.PlanExpired, []string{"ann"}, "u/PlanMade u/Approved u/PlanExpired"},
		{v1alpha1.PlanSuperseded, []string{"ann"}, "u/PlanMade u/PlanSuperseded"},
		{v1alpha1.PlanDone, nil, "u/PlanMade u/PlanDone"},
	} {
		p := &v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: v1alpha1.PlanStatus{State: c.state, Required: 2, Since: &since}}
		for _, by := range c.by {
			p.Status.Approvals = append(p.Status.Approvals, v1alpha1.GivenApproval{By: v1alpha1.UserName(by)})
		}
		if got := strings.Join(keys(ofPlan(p)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.state, got, c.want)
		}
	}
}

// TestOfSource_IsRefusedByWhatFailedFirst, and of the spec that the status is of.
func TestOfSource_IsRefusedByWhatFailedFirst(t *testing.T) {
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	s := &v1alpha1.PolicySource{ObjectMeta: metav1.ObjectMeta{Name: "git", UID: "u", Generation: 2}}
	s.Status = v1alpha1.PolicySourceStatus{
		ObservedGeneration: 2, ActiveCommit: &v1alpha1.Commit{Hash: "a", Since: &since}, ObservedCommit: &v1alpha1.Commit{Hash: "b", Author: "bob"},
		Conditions: []metav1.Condition{{Type: v1alpha1.Bounded, Status: metav1.ConditionUnknown}, {Type: v1alpha1.Tested, Status: metav1.ConditionFalse, Reason: "Test"}, {Type: v1alpha1.Compiled, Status: metav1.ConditionTrue}},
	}
	expect := func(want string) {
		t.Helper()
		if got := strings.Join(keys(ofSource(s)), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect("u/a/CommitTaken/1700000000 u/b/CommitRefused/Test")
	s.Status.Rollout = &v1alpha1.SourceRolloutStatus{Commit: "b", Phase: v1alpha1.RolloutTakenBack}
	s.Status.Conditions = nil
	expect("u/a/CommitTaken/1700000000 u/b/CommitTakenBack")
	if by := ofSource(s)[1].By; by != "bob" {
		t.Error(by)
	}
	s.Status.Rollout, s.Generation = nil, 3
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Verified, Status: metav1.ConditionFalse, Reason: "Unsigned"}}
	expect("u/a/CommitTaken/1700000000")
}

func TestOfStop_SaysWhatIsStopped(t *testing.T) {
	m := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}, Data: data}
	}
	if got := ofStop(m("other", nil)); got != nil {
		t.Error(got)
	}
	for _, c := range []struct {
		of   *corev1.ConfigMap
		want string
	}{
		{m("federator-stop", map[string]string{"reason": "incident"}), "stop of all||||all actions are stopped: incident"},
		{m("federator-stop-policy-tier", map[string]string{"scope": "policy", "name": "tier"}), "stop of policy tier|tier|||actions of policy tier are stopped"},
		{m("federator-stop-source-git", map[string]string{"scope": "source", "name": "git"}), "stop of source git||git||actions of source git are stopped"},
		{m("federator-stop-member-fleet.a", map[string]string{"scope": "member", "name": "fleet/a"}), "stop of member fleet/a|||fleet/a|actions of member fleet/a are stopped"},
	} {
		r := ofStop(c.of)
		if got := strings.Join([]string{r.Subject, r.Policy, r.Source, r.Member, r.Message}, "|"); got != c.want || r.Key != "u/Stopped" {
			t.Errorf("%s: %q %s, want %q", c.of.Name, got, r.Key, c.want)
		}
	}
	if r := ofStop(m("federator-stop-odd", nil)); r.Subject != history.MalformedStop || r.Policy+r.Source+r.Member != "" {
		t.Errorf("%+v", r)
	}
}
