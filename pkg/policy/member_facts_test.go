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
		if got := evaluationsOf(t, w, e, cursor, step.cluster); got != step.evaluations {
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

const (
	readsEach = `# METADATA
# title: One member
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.each

violation contains {"msg": sprintf("in %s", [name])} if {
	some name, m in data.fleet.members
	m.labels.region == "eu"
	m.conditions.Ready.status == "False"
}
`
	readsWhole = `# METADATA
# title: The member as a whole
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.whole

violation contains {"msg": "owned"} if {
	m := data.fleet.members[input.ref.member]
	m.annotations.owner == "b"
}
`
	readsInputCondition = `# METADATA
# title: The condition of the own member
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.input

violation contains {"msg": "not ready"} if input.member.conditions.Ready.status == "False"

violation contains {"msg": "owned"} if input.member.annotations.owner == "b"
`
)

// Conditions of Clusters change all the time, in their messages above all: nobody is evaluated for what they do
// not read of them, however they come to it.
func TestEngine_MemberFactsThatNobodyReads(t *testing.T) {
	t.Parallel()
	w, err := deployments(t, 5)
	if err != nil {
		t.Fatal(err)
	}
	set := load(t, readsEach, readsWhole, readsInputCondition)
	e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindingsOf(set)})
	ready := func(status, message string, others ...aggregate.Condition) []aggregate.Condition {
		return append(others, aggregate.Condition{Type: "Ready", Status: status, Message: message})
	}
	for _, step := range []struct {
		what        string
		cluster     aggregate.Cluster
		evaluations int64
	}{
		{"a condition", aggregate.Cluster{Conditions: ready("False", "1 of 3")}, 10 + 5},
		{"its message", aggregate.Cluster{Conditions: ready("False", "2 of 3")}, 0},
		{"another condition", aggregate.Cluster{Conditions: ready("False", "2 of 3", aggregate.Condition{Type: "Other"})}, 0},
		{"another annotation", aggregate.Cluster{Annotations: []aggregate.Label{{Key: "a", Value: "b"}}, Conditions: ready("False", "")}, 0},
		{"its annotation", aggregate.Cluster{Annotations: []aggregate.Label{{Key: "owner", Value: "b"}}, Conditions: ready("False", "")}, 5 + 5},
		{"paused", aggregate.Cluster{Paused: true, Class: "quick", Annotations: []aggregate.Label{{Key: "owner", Value: "b"}}, Conditions: ready("False", "")}, 0},
		{"the condition goes", aggregate.Cluster{Paused: true, Annotations: []aggregate.Label{{Key: "owner", Value: "b"}}}, 10 + 5},
	} {
		if got := evaluationsOf(t, w, e, cursor, step.cluster); got != step.evaluations {
			t.Errorf("%s: %d evaluations, want %d", step.what, got, step.evaluations)
		}
	}
}

// evaluationsOf changes what fleet/a's Cluster says, and returns how many evaluations that takes.
func evaluationsOf(t *testing.T, w *world, e *policy.Engine, cursor *aggregate.Cursor, cluster aggregate.Cluster) int64 {
	t.Helper()
	before := e.Stats().Evaluations
	now, _ := w.index.Snapshot().Member("fleet/a")
	now.Cluster = cluster
	if err := w.index.PutMember(now); err != nil {
		t.Fatal(err)
	}
	batch, err := cursor.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Apply(t.Context(), batch, nil); err != nil {
		t.Fatal(err)
	}
	return e.Stats().Evaluations - before
}
