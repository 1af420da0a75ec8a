package hub

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// TestStatusDue_CountersWait, everything else is written at once.
func TestStatusDue_CountersWait(t *testing.T) {
	now := time.Now()
	status := func(change func(*v1alpha1.FleetPolicyStatus)) *v1alpha1.FleetPolicyStatus {
		s := &v1alpha1.FleetPolicyStatus{
			ObservedGeneration: 1, Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Bound", Message: "x", LastTransitionTime: metav1.NewTime(now)}},
			Totals: &v1alpha1.Verdicts{Subjects: 2, Violations: 1}, Members: []v1alpha1.MemberVerdicts{{Name: "fleet/a"}},
			DryRun:  &v1alpha1.DryRunProgress{Plan: "a", Remaining: 1},
			Actions: &v1alpha1.ActionCounts{Pending: 1}, Budget: []v1alpha1.Budget{{Targets: 1}},
			Wave: &v1alpha1.WaveStatus{Name: "canary", Number: 1, Of: 2, Phase: v1alpha1.WaveSoaking},
		}
		change(s)
		return s
	}
	old := status(func(*v1alpha1.FleetPolicyStatus) {})
	for _, test := range []struct {
		name       string
		change     func(*v1alpha1.FleetPolicyStatus)
		soon, late bool // due with a write before, and after 10 s
	}{
		{"nothing", func(*v1alpha1.FleetPolicyStatus) {}, false, false},
		{"the time of a condition", func(s *v1alpha1.FleetPolicyStatus) {
			s.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(time.Hour))
		}, false, false},
		{"totals", func(s *v1alpha1.FleetPolicyStatus) { s.Totals.Violations = 7 }, false, true},
		{"members", func(s *v1alpha1.FleetPolicyStatus) { s.Members, s.MembersOmitted = nil, 3 }, false, true},
		{"actions", func(s *v1alpha1.FleetPolicyStatus) { s.Actions.Pending, s.Actions.Succeeded = 0, 1 }, false, true},
		{"budget", func(s *v1alpha1.FleetPolicyStatus) { s.Budget[0].Targets = 2 }, false, true},
		{"a dry run that goes on", func(s *v1alpha1.FleetPolicyStatus) { s.DryRun.Changed, s.DryRun.Remaining = 3, 7 }, false, true},
		{"a dry run that has ended", func(s *v1alpha1.FleetPolicyStatus) { s.DryRun.Plan, s.DryRun.Answers.Passed = "b", 7 }, true, true},
		{"unhealthy objects", func(s *v1alpha1.FleetPolicyStatus) { s.Wave.Unhealthy = 2 }, false, true},
		{"a condition", func(s *v1alpha1.FleetPolicyStatus) { s.Conditions[0].Status = "False" }, true, true},
		{"the generation", func(s *v1alpha1.FleetPolicyStatus) { s.ObservedGeneration = 2 }, true, true},
		{"a halt, and counters", func(s *v1alpha1.FleetPolicyStatus) {
			s.Halted = &v1alpha1.Halt{ID: "x"}
			s.Totals.Violations = 9
		}, true, true},
		{"the wave", func(s *v1alpha1.FleetPolicyStatus) { s.Wave.Number, s.Wave.Phase = 2, v1alpha1.WaveWriting }, true, true},
	} {
		next := status(test.change)
		if got := statusDue(old, next, now.Add(-9*time.Second), now); got != test.soon {
			t.Errorf("%s: due 9 s after a write: %v, want %v", test.name, got, test.soon)
		}
		if got := statusDue(old, next, now.Add(-10*time.Second), now); got != test.late {
			t.Errorf("%s: due 10 s after a write: %v, want %v", test.name, got, test.late)
		}
		if got := statusDue(old, next, time.Time{}, now); got != test.late {
			t.Errorf("%s: due without a write: %v, want %v", test.name, got, test.late)
		}
	}
}

// TestEnforcingCondition_NamesWhyCorrectionsWait: State of kubectl is its reason.
func TestEnforcingCondition_NamesWhyCorrectionsWait(t *testing.T) {
	fp := &v1alpha1.FleetPolicy{Spec: v1alpha1.FleetPolicySpec{Mode: v1alpha1.Enforce}}
	free := enforce.EnforcementStatus{Mode: policy.Enforce, Complete: true}
	for waiting, want := range map[string]string{
		"":                                "Enforcing",
		"member m1 is paused":             "Waiting",
		remediate.WaitingForWindow:        "WindowClosed",
		remediate.WaitingForCeilingWindow: "WindowClosed",
		remediate.WaitingForRoom:          "TooManyActions",
	} {
		c := enforcingCondition(fp, free, remediate.Status{Waiting: waiting}, true, true, "")
		if c.Reason != want || waiting != "" && c.Message != waiting {
			t.Errorf("%q: %s: %s, want %s", waiting, c.Reason, c.Message, want)
		}
	}
}

// TestDryRunMessage_SaysHowFarItIs, and why a policy is in mode DryRun that is not its own.
func TestDryRunMessage_SaysHowFarItIs(t *testing.T) {
	done := &remediate.DryRunStatus{Plan: "a-1", Targets: 9, Running: true, Remaining: 3}
	done.Answers.Passed = 7
	for _, c := range []struct {
		reason string
		run    *remediate.DryRunStatus
		want   string
	}{
		{"", nil, "members have not been asked yet what they would answer"},
		{"", &remediate.DryRunStatus{}, "members have not been asked yet what they would answer"},
		{"", &remediate.DryRunStatus{Running: true, Remaining: 3}, "members are being asked what they would answer"},
		{"the ceiling is DryRun", done, "the ceiling is DryRun; Plan a-1 has what members answered: 7 of 9 targets would be changed; see federator actions plan a"},
	} {
		if got := dryRunMessage("a", c.reason, c.run); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if p := toDryRun(done); p.Plan != "a-1" || p.Targets != 9 || p.Answers.Passed != 7 || p.Remaining != 3 || p.At == nil {
		t.Errorf("%+v", p)
	}
	if toDryRun(nil) != nil {
		t.Error("a dry run of a policy that makes none")
	}
}
