package policy_test

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy"
)

const beyondLimit = `# METADATA
# title: Exceeds a limit where nobody asks
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.beyond

`

// TestEngine_LimitsAreThoseOfWhatIsEvaluated has policies that exceed a limit in rules which
// OPA's index leaves out, or whose first solution it ends with: compiled, they have the
// verdicts that they have when OPA interprets them.
func TestEngine_LimitsAreThoseOfWhatIsEvaluated(t *testing.T) {
	t.Parallel()
	const (
		leftOut = `
violation contains {"msg": "never"} if {
	count(numbers.range(0, 1000000000 * input.object.spec.replicas)) > 0
	input.object.kind == "Other"
}

violation contains {"msg": "found"}
`
		ended = `
wide := true if {
	input.object.kind == "Deployment"
	some n in [1, 1000000000]
	count(numbers.range(0, n)) > 0
}

wide := "no" if input.object.kind == "Other"

violation contains {"msg": "found"} if wide
`
		reads = `
violation contains {"msg": "never"} if count(data.fleet.names) < 0
`
	)
	for name, c := range map[string]struct {
		rules string
		want  policy.Counts
	}{
		"left out":                {leftOut, policy.Counts{Known: 1, Violations: 1}},
		"ended":                   {ended, policy.Counts{Known: 1, Violations: 1}},
		"left out, without index": {leftOut + reads, policy.Counts{Errors: 1}},
		"ended, without index":    {ended + reads, policy.Counts{Errors: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := map[bool]string{}
			for _, interpreted := range []bool{true, false} {
				w, err := deployments(t, 0)
				if err != nil {
					t.Fatal(err)
				}
				mustDo(t, w, deployment("fleet/b", "d", map[string]any{"replicas": 1}))
				set := load(t, beyondLimit+c.rules)
				e, _ := engineOn(t, w, policy.EngineOptions{
					Set: set, Bindings: bindingsOf(set), Interpreted: interpreted, Limits: policy.Limits{Evaluation: time.Hour},
				})
				if got := e.State().Total("test.beyond"); got != c.want {
					t.Errorf("interpreted %v: %+v, want %+v", interpreted, got, c.want)
				}
				for f := range e.State().Findings("test.beyond", "") {
					said[interpreted] += fmt.Sprintln(f.Message)
				}
			}
			if said[true] != said[false] {
				t.Errorf("interpreted it says %q, compiled %q", said[true], said[false])
			}
		})
	}
}
