package selection_test

import (
	"fmt"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/selection"
)

// Severe violations are selected, and what becomes of the FleetPolicy that names the Notification.
func Example() {
	s, err := selection.New(selection.Options{
		Rules: []selection.Rule{{Types: []string{"Violation"}, Severities: []string{"high", "critical"}, Transitions: []string{"Opened", "Closed"}}},
		Named: func(policy string) bool { return policy == "tier" },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range []history.Record{
		{Type: history.Verdict, Transition: history.Opened, Policy: "unique-host", Severity: "high"},
		{Type: history.Verdict, Transition: history.Opened, Policy: "unique-host", Severity: "low"},
		{Type: history.Policy, Transition: history.Halted, Policy: "tier"},
	} {
		fmt.Println(s.Selects(&r))
	}
	_, err = selection.New(selection.Options{Rules: []selection.Rule{{Policies: []string{"[a"}}}})
	fmt.Println(err)
	// Output:
	// true
	// false
	// true
	// rules[0].policies[0]: "[a": syntax error in pattern
}
