package actions

import (
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policyquery"
)

// TestPlanText_ShowsWhatIsApproved, what the caller cannot see of it, and nothing that steers a
// terminal.
func TestPlanText_ShowsWhatIsApproved(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 9, 5, 0, time.UTC)
	list := &policyquery.PlanList{
		Plans: []policyquery.PlanSummary{
			{
				Name: "replicas-2", Hash: "2f", Purpose: "Halt", State: "Waiting", Since: "2026-01-02T03:04:05Z", Halt: "h1", Required: 2, Approved: 1,
				Targets: 9, Hidden: 6, Irreversible: 1, DryRun: map[string]int{"Refused": 1, "Passed": 2},
				Counts: []policyquery.PlanTargetCount{{Member: "fleet/a", Kind: "ConfigMap", Verb: "delete", Targets: 3}}, CountsOmitted: 4,
			},
			{Name: "replicas-1", Hash: "1f", Purpose: "Generation", State: "Freezing", Problem: "its parts are being recorded", Targets: 5, Hidden: 5},
		},
		Items: []policyquery.PlanTarget{
			{Plan: "replicas-2", Member: "fleet/a", Kind: "ConfigMap", Namespace: "shop", Name: "web", Verb: "delete", Irreversible: "\x1b[31mit is gone", Diff: "- data.a: \"1\"\n+ data.b: \"\x1b[2J\"\n"},
			{Plan: "replicas-2", Member: "fleet/a", Kind: "Namespace", Name: "shop", Verb: "patch", DryRun: "Refused", Message: "no\nway", APIVersion: "v1", UID: "u", Remedy: strings.Repeat("0123456789", 6)},
		},
	}
	want := `Plan:           replicas-2
Hash:           2f
Purpose:        Halt
Halt:           h1
State:          Waiting since 2026-01-02T03:04:05Z (5m ago)
Approvals:      1 of 2
Targets:        9, 6 hidden: you may not list them
Irreversible:   1
Written:        0
Dry run:        Passed 2, Refused 1

MEMBER    KIND        VERB     TARGETS
fleet/a   ConfigMap   delete         3
and 4 more rows

MEMBER    VERB     KIND        NAMESPACE   TARGET   IRREVERSIBLE
fleet/a   delete   ConfigMap   shop        web      [31mit is gone
fleet/a   patch    Namespace   -           shop     -

ConfigMap shop/web in fleet/a:
  - data.a: "1"
  + data.b: " [2J"

Plan:        replicas-1
Hash:        1f
Purpose:     Generation
State:       Freezing
Problem:     its parts are being recorded
Approvals:   0 of 0
Targets:     5, none shown
Written:     0
`
	if got := string(planText(list, false, now, false)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	wide := string(planText(list, true, now, false))
	if !strings.Contains(wide, "Refused   no way    v1            u     012345678901\n") {
		t.Errorf("wide:\n%s", wide)
	}
}
