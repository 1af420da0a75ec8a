package alerts_test

import (
	"fmt"
	"time"

	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/notify/alerts"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/policy"
)

// The alerts of severe violations, one for each policy and member, and of halts.
func Example() {
	rules, err := selection.New(selection.Options{Rules: []selection.Rule{
		{Types: []string{"Violation"}, Severities: []string{"high", "critical"}},
		{Types: []string{"Policy"}, Transitions: []string{"Halted", "HaltEnded"}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := alerts.New(alerts.Options{Selection: rules, GroupBy: []string{alerts.ByPolicy, alerts.ByMember}})
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(state *policy.State) []alerts.Alert { return a.Open(state, state.Judges) }
	_ = open
	for _, x := range a.Facts([]notify.Fact{{
		Type: notify.HaltBegan, Ongoing: true, Subject: "FleetPolicy/tier", At: time.Now(), Data: map[string]string{"policy": "tier", "halt": "3f2a", "reason": "MaxTargets"},
	}}) {
		fmt.Println(x.Labels, x.Summary)
	}
	// Output: map[alertname:FederatorHalt halt:3f2a policy:tier] corrections of policy tier are halted: MaxTargets
}
