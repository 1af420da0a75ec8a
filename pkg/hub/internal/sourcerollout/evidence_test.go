package sourcerollout_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub/internal/sourcerollout"
	"federator.dev/federator/pkg/policy"
)

// evaluated returns the verdicts of a set's default bindings, and of what rolls out beside them, on Pods with a label each.
func evaluated(t *testing.T, set *policy.Set, state aggregate.State, labels ...string) *policy.State {
	t.Helper()
	bindings, _ := policy.DefaultBindings(set, nil)
	for i := range bindings {
		if name := set.Candidate(bindings[i].Package); name != "" {
			next := bindings[i]
			next.Package = name
			bindings[i].Next = &policy.Next{Binding: next}
		}
	}
	return stateOf(t, set, bindings, state, labels...)
}

func stateOf(t *testing.T, set *policy.Set, bindings []policy.Binding, state aggregate.State, labels ...string) *policy.State {
	t.Helper()
	engine, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings})
	if err != nil {
		t.Fatal(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/one", UID: "one"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/one", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	var items []aggregate.Item
	for i, label := range labels {
		name := string(rune('a' + i))
		items = append(items, scope.Item(&aggregate.Record{Namespace: "shop", Name: name, UID: name, ResourceVersion: "1", Body: []byte(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop","labels":{"` + label + `":"x"}}}`)}))
	}
	if _, err := scope.Replace(items, aggregate.Status{State: state}); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Reset(t.Context(), index.Snapshot()); err != nil {
		t.Fatal(err)
	}
	return engine.State()
}

// TestEvidenceOf_IsOfPackagesWithoutFleetPolicy: as the verdicts of both versions differ, once they are of this commit.
func TestEvidenceOf_IsOfPackagesWithoutFleetPolicy(t *testing.T) {
	active := load(t, "old")
	beside := policy.Beside(active, []policy.Candidate{{Source: "team", Set: load(t, "next")}})
	rolls := beside.Candidate("p") != ""
	packages := []string{"gone", "p"}
	is := evaluated(t, beside, aggregate.Synced, "old", "next", "next", "other")
	e, any := sourcerollout.EvidenceOf(is, beside, packages, nil)
	if any != rolls || rolls && (!e.Complete || e.Subjects != 4 || e.New != 2 || e.Gone != 1 || e.Errors != 0) {
		t.Errorf("%t, %+v", any, e)
	}
	// Not all is read, nothing is evaluated, or what is evaluated is older.
	for what, is := range map[string]*policy.State{
		"syncing": evaluated(t, beside, aggregate.Syncing, "old"), "nothing": nil, "older": evaluated(t, active, aggregate.Synced, "old"),
		"another commit": evaluated(t, policy.Beside(active, []policy.Candidate{{Source: "team", Set: load(t, "other")}}), aggregate.Synced, "other"),
	} {
		if e, any := sourcerollout.EvidenceOf(is, beside, packages, nil); any != rolls || e.Complete {
			t.Errorf("%s: %t, %+v", what, any, e)
		}
	}
	// A FleetPolicy says itself how far it is; one that is not in effect leaves its package to the rest.
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fp"}, Spec: v1alpha1.FleetPolicySpec{Package: "p"}}
	if _, any := sourcerollout.EvidenceOf(is, beside, packages, []*v1alpha1.FleetPolicy{fp}); any {
		t.Error("its package has a FleetPolicy")
	}
	fp.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Invalid"}}
	if _, any := sourcerollout.EvidenceOf(is, beside, packages, []*v1alpha1.FleetPolicy{fp}); any != rolls {
		t.Error("its FleetPolicy is not in effect")
	}
}

// TestEvidenceOf_PackageThatNowTakesAParameter has nothing to compare: nobody gives it one.
func TestEvidenceOf_PackageThatNowTakesAParameter(t *testing.T) {
	active, next := load(t, "x"), loadText(t, strings.Replace(text("x"), "kinds: [Pod]", "kinds: [Pod]\n#   parameters: {type: object, required: [a], properties: {a: {type: string}}}", 1))
	beside := policy.Beside(active, []policy.Candidate{{Source: "team", Set: next}})
	bindings, _ := policy.DefaultBindings(beside, nil)
	if len(bindings) != 1 || beside.Candidate("p") == "" {
		t.Fatalf("%+v", bindings)
	}
	if e, any := sourcerollout.EvidenceOf(stateOf(t, beside, bindings, aggregate.Synced, "x"), beside, []string{"p"}, nil); any {
		t.Errorf("it waits for %+v", e)
	}
}

// TestEvidenceOf_CostIsOfManyEvaluations: of one of each version it is not known.
func TestEvidenceOf_CostIsOfManyEvaluations(t *testing.T) {
	beside := policy.Beside(load(t, "old"), []policy.Candidate{{Source: "team", Set: load(t, "next")}})
	for n, want := range map[int]bool{1: false, 20: true} {
		e, _ := sourcerollout.EvidenceOf(evaluated(t, beside, aggregate.Synced, slices.Repeat([]string{"old"}, n)...), beside, []string{"p"}, nil)
		if (e.Cost != nil) != want {
			t.Errorf("%d evaluations of each version: %v", n, e.Cost)
		}
	}
}
