package policy_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const ofRegion = `# METADATA
# title: Reads the labels of its member
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.region

violation contains {"msg": sprintf("in %s", [input.member.labels.region])} if input.object.spec.replicas > 1
`

// TestEngine_RejoinWithinOneBatchUsesNewLabels has a member leave and
// come back under its name, with the objects that it had, before the engine looks.
func TestEngine_RejoinWithinOneBatchUsesNewLabels(t *testing.T) {
	t.Parallel()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, op{Do: "join", Member: "fleet/a", UID: 1, Labels: map[string]string{"region": "eu"}},
		op{Do: "reopen", Member: "fleet/a", Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced},
		deployment("fleet/a", "web", map[string]any{"replicas": 5}))
	set := load(t, ofRegion)
	bindings := bindingsOf(set)
	selecting := bindings[0]
	selecting.Name, selecting.Members = "only.us", policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "us"}}}
	bindings = append(bindings, selecting)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings})
	mustDo(t, w, op{Do: "rejoin", Member: "fleet/a", UID: 2, Labels: map[string]string{"region": "us"}})
	apply(t, e, cursor)
	web := policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	for _, b := range bindings {
		v, ok := e.State().Get(b.Name, web)
		if !ok || len(v.Violations) != 1 || v.Violations[0].Msg != "in us" {
			t.Errorf("%s: %v %+v", b.Name, ok, v)
		}
	}
}
