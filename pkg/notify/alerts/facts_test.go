package alerts_test

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/notify/selection"
)

func TestFacts_AreWhatGoesOn(t *testing.T) {
	t.Parallel()
	w := &world{}
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	stop := func(name, stopped string) notify.Fact {
		return notify.Fact{Type: notify.StopBegan, Until: notify.StopEnded, Subject: "ConfigMap/" + name, At: at(3), Data: map[string]string{"stopped": stopped, "reason": "too much", "message": "actions are stopped"}}
	}
	facts := []notify.Fact{
		{Type: notify.HaltBegan, Ongoing: true, Subject: "FleetPolicy/tier", At: at(2), Data: map[string]string{"policy": "tier", "halt": "3f2a", "reason": "MaxTargets", "message": "12 targets"}},
		{Type: notify.HaltBegan, Ongoing: true, Subject: "FleetPolicy/tier", At: at(1), Data: map[string]string{"policy": "tier", "halt": "17bb"}},
		{Type: notify.HaltBegan, Subject: "FleetPolicy/other", At: at(1), Data: map[string]string{"policy": "other", "halt": "9"}}, // it has ended
		{Type: notify.HaltEnded, Subject: "FleetPolicy/other", At: at(2), Data: map[string]string{"policy": "other", "halt": "9"}},
		stop("federator-stop", "all"), stop("federator-stop-a", "policy tier"), stop("federator-stop-b", "member fleet/a"), stop("federator-stop-c", "source git"),
		{Type: notify.PlanWaits, Ongoing: true, Subject: "Plan/tier-1", At: at(4), Data: map[string]string{"policy": "tier", "targets": "12"}},
		{Type: notify.PlanWaits, Subject: "Plan/tier-0", At: at(4), Data: map[string]string{"policy": "tier", "targets": "12"}}, // it was approved
		{Type: notify.ApprovalGiven, Ongoing: true, Subject: "Approval/x", At: at(4)},
	}
	all := []string{
		"FederatorHalt tier 17bb | 1 | corrections of policy tier are halted", "FederatorHalt tier 3f2a | 2 | corrections of policy tier are halted: MaxTargets",
		"FederatorPlanWaits tier tier-1 | 4 | plan tier-1 of policy tier waits for approval: targets 12",
		"FederatorStop federator-stop | 3 | all actions are stopped", "FederatorStop fleet/a federator-stop-b | 3 | actions of member fleet/a are stopped",
		"FederatorStop tier federator-stop-a | 3 | actions of policy tier are stopped", "FederatorStop git federator-stop-c | 3 | actions of source git are stopped",
	}
	for what, c := range map[string]struct {
		rule selection.Rule
		want []string
	}{
		"all":       {selection.Rule{Types: []string{"Policy"}}, []string{all[0], all[1], all[2], all[3], all[6], all[4], all[5]}},
		"none":      {selection.Rule{Types: []string{"Violation"}}, nil},
		"halts":     {selection.Rule{Transitions: []string{"Halted"}}, all[:2]},
		"of policy": {selection.Rule{Policies: []string{"tier"}}, []string{all[0], all[1], all[2], all[5]}},
		"kinds":     {selection.Rule{Kinds: []string{"Plan.federator.dev"}}, all[2:3]},
	} {
		same(t, what, w.lines(newAlerts(t, false, nil, c.rule).Facts(facts)), c.want...)
	}
	for text, want := range map[bool][]string{false: {"", ""}, true: {"12 targets", "actions are stopped: too much"}} {
		got := newAlerts(t, text, nil).Facts(facts)
		if got[1].Description != want[0] || got[3].Description != want[1] {
			t.Errorf("descriptions with text %t are %q and %q", text, got[1].Description, got[3].Description)
		}
	}
}

func TestFacts_AreBounded(t *testing.T) {
	t.Parallel()
	var facts []notify.Fact
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 2000 {
		f := notify.Fact{Type: notify.PlanWaits, Ongoing: true, Subject: fmt.Sprintf("Plan/p-%d", i), At: begin.Add(time.Duration(-i) * time.Minute), Data: map[string]string{"policy": "p"}}
		facts = append(facts, f, f) // listed twice
	}
	got := newAlerts(t, false, nil).Facts(facts)
	if len(got) != 333 || got[0].Labels["plan"] != "p-1999" || got[332].Labels["others"] != "true" || got[332].Labels["plan"] != "" {
		t.Errorf("%d alerts, from %v to %v", len(got), got[0].Labels, got[len(got)-1])
	}
}
