package policy_test

import (
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const (
	readsCondition = `# METADATA
# title: Ready
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.ready

violation contains {"msg": "not ready"} if data.fleet.members[input.ref.member].conditions.Ready.status != "True"
`
	readsInput = `# METADATA
# title: Paused
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.paused

violation contains {"msg": "paused"} if input.member.paused
`
	readsLabels = `# METADATA
# title: Regions
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.regions

violation contains {"msg": "eu"} if input.member.labels.region == "eu"

violation contains {"msg": "owned"} if data.fleet.members[input.ref.member].annotations.owner
`
)

// A change of what a Cluster says is evaluated by those who read that field, and no others.
func TestEngine_MemberFactsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 5)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, readsCondition, readsInput, readsLabels)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
	for _, step := range []struct {
		what        string
		cluster     aggregate.Cluster
		evaluations int64
		violations  []string
	}{
		{"a condition that nobody reads", aggregate.Cluster{Conditions: []aggregate.Condition{{Type: "Other", Status: "False"}}}, 0, nil},
		{"the condition", aggregate.Cluster{Conditions: []aggregate.Condition{{Type: "Ready", Status: "False"}}}, 5, []string{"test.ready"}},
		{"paused", aggregate.Cluster{Paused: true, Conditions: []aggregate.Condition{{Type: "Ready", Status: "False"}}}, 5, []string{"test.paused", "test.ready"}},
		{"an annotation that nobody reads", aggregate.Cluster{Paused: true, Annotations: []aggregate.Label{{Key: "a", Value: "b"}}, Conditions: []aggregate.Condition{{Type: "Ready", Status: "False"}}}, 0, []string{"test.paused", "test.ready"}},
		{"the annotation and the topology", aggregate.Cluster{Paused: true, Class: "quick", Annotations: []aggregate.Label{{Key: "owner", Value: "b"}}, Conditions: []aggregate.Condition{{Type: "Ready", Status: "False"}}}, 5, []string{"test.paused", "test.ready", "test.regions"}},
		{"nothing is left", aggregate.Cluster{}, 15, nil},
	} {
		before := e.Stats().Evaluations
		now, _ := w.index.Snapshot().Member("fleet/a")
		now.Cluster = step.cluster
		if err := w.index.PutMember(now); err != nil {
			t.Fatal(err)
		}
		batch, err := cursor.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if got := e.Stats().Evaluations - before; got != step.evaluations {
			t.Errorf("%s: %d evaluations, want %d", step.what, got, step.evaluations)
		}
		var found []string
		for _, name := range []string{"test.paused", "test.ready", "test.regions"} {
			if e.State().Total(name).Violations == 5 {
				found = append(found, name)
			}
		}
		if !slices.Equal(found, step.violations) {
			t.Errorf("%s: violations of %q, want %q", step.what, found, step.violations)
		}
	}
}
