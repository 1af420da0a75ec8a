package enforcement_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/pkg/policy"
)

func TestRequiredKinds_HasWhatRemediesWrite(t *testing.T) {
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(`# METADATA
# title: Budgets
# custom: {severity: low, kinds: ["Deployment.v1.apps"], remedies: [{action: apply, kind: PodDisruptionBudget.policy}, {action: patch, kind: Deployment.apps}]}
package p

violation contains {"msg": "x"} if input.object.spec.x
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(enforcement.RequiredKinds(set)); got != "[Deployment.apps PodDisruptionBudget.policy]" {
		t.Error(got)
	}
}
