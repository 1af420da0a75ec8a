package hub

import (
	"testing"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// TestCountVerdicts_AreOfTheWholeFleet: those of keys of views are of no member, and the most violations come first.
func TestCountVerdicts_AreOfTheWholeFleet(t *testing.T) {
	f := &FleetPolicies{opts: FleetPoliciesOptions{Verdicts: func(name string) (FleetVerdicts, error) {
		return FleetVerdicts{Counts: map[string]policy.Counts{
			"": {Known: 1, Violations: 1}, "fleet/a": {Known: 2, Violations: 1}, "fleet/b": {Known: 3, Violations: 3, Unknown: 1}, "fleet/c": {Known: 7},
		}, Protected: map[string]int{"fleet/a": 4}, Synced: true, Problem: name, Counting: true, OverCeiling: 3, OverCeilingReason: "high", Contradicting: 2, Contradiction: "both"}, nil
	}}}
	here := enforce.EnforcementStatus{Mode: policy.Enforce, Complete: true, OverCeiling: 1, OverCeilingReason: "here"}
	v, err := f.verdictsOf("p", nil, &here)
	if err != nil || v.Problem != "p" {
		t.Fatal(v, err)
	}
	if here.Complete || here.OverCeiling != 3 || here.OverCeilingReason != "high" || here.Contradicting != 2 || here.Contradiction != "both" {
		t.Errorf("%+v is of one process only", here)
	}
	total, members, omitted := countVerdicts(&v)
	if total.Subjects != 14 || total.Violations != 5 || total.Unknown != 1 || total.Protected != 4 || omitted != 0 {
		t.Errorf("%+v, %d omitted", total, omitted)
	}
	if len(members) != 2 || members[0].Name != "fleet/b" || members[1].Name != "fleet/a" {
		t.Errorf("%+v", members)
	}
}
