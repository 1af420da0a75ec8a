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
	first := policy.FirstBindings(set, bindings)
	for i := range bindings {
		if name := set.Candidate(bindings[i].Package); name != "" {
			next := bindings[i]
			next.Package = name
			if _, err := policy.ValidateBindings(set, []policy.Binding{next}); err == nil {
				bindings[i].Next = &policy.Next{Binding: next}
			}
		}
	}
	bindings = append(bindings, first...)
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
			`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"` + label + `":"x"},"name":"` + name + `","namespace":"shop"}}`)}))
	}
	if _, err := scope.Replace(items, aggregate.Status{State: state}); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Reset(t.Context(), index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	return engine.State()
}

// evidenceOf returns the evidence as a status has it, what of that is of packages that are new, and whether there is any.
func evidenceOf(is *policy.State, beside *policy.Set, packages []string, list []*v1alpha1.FleetPolicy) (all, added v1alpha1.RolloutEvidence, any bool) {
	c := sourcerollout.EvidenceOf(is, beside, packages, list)
	all, added = c.Status()
	return all, added, c.Any()
}

// TestEvidenceOf_IsOfPackagesWithoutFleetPolicy: as the verdicts of both versions differ, once they are of this commit.
func TestEvidenceOf_IsOfPackagesWithoutFleetPolicy(t *testing.T) {
	active := load(t, "old")
	beside := policy.Beside(active, []policy.Candidate{{Source: "team", Set: load(t, "next")}})
	rolls := beside.Candidate("p") != ""
	packages := []string{"gone", "p"}
	is := evaluated(t, beside, aggregate.Synced, "old", "next", "next", "other")
	e, _, any := evidenceOf(is, beside, packages, nil)
	if any != rolls || rolls && (!e.Complete || e.Subjects != 4 || e.New != 2 || e.Gone != 1 || e.Errors != 0) {
		t.Errorf("%t, %+v", any, e)
	}
	// Not all is read, nothing is evaluated, or what is evaluated is older.
	for what, is := range map[string]*policy.State{
		"syncing": evaluated(t, beside, aggregate.Syncing, "old"), "nothing": nil, "older": evaluated(t, active, aggregate.Synced, "old"),
		"another commit": evaluated(t, policy.Beside(active, []policy.Candidate{{Source: "team", Set: load(t, "other")}}), aggregate.Synced, "other"),
	} {
		if e, _, any := evidenceOf(is, beside, packages, nil); any != rolls || e.Complete {
			t.Errorf("%s: %t, %+v", what, any, e)
		}
	}
	// A FleetPolicy says itself how far it is; one that is not in effect leaves its package to the rest.
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fp"}, Spec: v1alpha1.FleetPolicySpec{Package: "p"}}
	if _, _, any := evidenceOf(is, beside, packages, []*v1alpha1.FleetPolicy{fp}); any {
		t.Error("its package has a FleetPolicy")
	}
	fp.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: "Invalid"}}
	if _, _, any := evidenceOf(is, beside, packages, []*v1alpha1.FleetPolicy{fp}); any != rolls {
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
	if e, _, any := evidenceOf(stateOf(t, beside, bindings, aggregate.Synced, "x"), beside, []string{"p"}, nil); any {
		t.Errorf("it waits for %+v", e)
	}
}

// TestEvidenceOf_CostIsOfManyEvaluations: of one of each version it is not known.
func TestEvidenceOf_CostIsOfManyEvaluations(t *testing.T) {
	beside := policy.Beside(load(t, "old"), []policy.Candidate{{Source: "team", Set: load(t, "next")}})
	for n, want := range map[int]bool{1: false, 20: true} {
		e, _, _ := evidenceOf(evaluated(t, beside, aggregate.Synced, slices.Repeat([]string{"old"}, n)...), beside, []string{"p"}, nil)
		if (e.Cost != nil) != want {
			t.Errorf("%d evaluations of each version: %v", n, e.Cost)
		}
	}
}

// TestEvidenceOf_WhatACommitAddsAndRemoves: constraints and packages that no FleetPolicy names.
func TestEvidenceOf_WhatACommitAddsAndRemoves(t *testing.T) {
	type files map[string]string
	template := `{"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "haslabel"}, "spec": {"crd": {"spec": {"names": {"kind": "HasLabel"},
		"validation": {"openAPIV3Schema": {"type": "object", "properties": {"label": {"type": "string"}}}}}},
		"targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package x\n\nviolation[{\"msg\": \"m\"}] {\n  input.review.object.metadata.labels[input.parameters.label]\n}\n"}]}}`
	constraint := func(name, label string) string {
		return `{"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "HasLabel", "metadata": {"name": "` + name + `"}, "spec": {"match": {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}, "parameters": {"label": "` + label + `"}}}`
	}
	loadFiles := func(f files) *policy.Set {
		source := policy.Source{Name: "team"}
		for path, data := range f {
			source.Files = append(source.Files, policy.File{Path: path, Data: []byte(data)})
		}
		set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	const pkg = "gatekeeper.haslabel"
	q := strings.Replace(text("b"), "package p", "package q", 1)
	fails := strings.Replace(q, "input.object.metadata.labels.b", "to_number(input.object.metadata.name) > 0", 1)
	one, both := files{"t.yaml": template, "a.yaml": constraint("a", "a")}, files{"t.yaml": template, "a.yaml": constraint("a", "a"), "b.yaml": constraint("b", "b")}
	for name, c := range map[string]struct {
		active, next files
		packages     []string
		policies     []string // of constraints, or packages
		want, added  v1alpha1.RolloutEvidence
		none         bool
	}{
		"a constraint is added": {active: one, next: both, packages: []string{pkg}, want: v1alpha1.RolloutEvidence{Complete: true, Subjects: 8, New: 2}},
		"a constraint is added beside one with a FleetPolicy": {
			active: one, next: both, packages: []string{pkg}, policies: []string{"HasLabel/a"}, want: v1alpha1.RolloutEvidence{Complete: true, Subjects: 4, New: 2},
		},
		"all constraints have FleetPolicies": {active: one, next: both, packages: []string{pkg}, policies: []string{"HasLabel/a", "HasLabel/b"}, none: true},
		"a constraint is removed":            {active: both, next: one, packages: []string{pkg}, want: v1alpha1.RolloutEvidence{Complete: true, Subjects: 4, Gone: 2}},
		"a template is added with its constraints": {
			active: files{"p.rego": text("a")}, next: files{"p.rego": text("a"), "t.yaml": template, "b.yaml": constraint("b", "b")}, packages: []string{pkg},
			want: v1alpha1.RolloutEvidence{Complete: true, Subjects: 4, New: 2}, added: v1alpha1.RolloutEvidence{Subjects: 4, New: 2},
		},
		"a package is added": {
			active: files{"p.rego": text("a")}, next: files{"p.rego": text("a"), "q.rego": q}, packages: []string{"q"},
			want: v1alpha1.RolloutEvidence{Complete: true, Subjects: 4, New: 2}, added: v1alpha1.RolloutEvidence{Subjects: 4, New: 2},
		},
		"a package is added that fails": {
			active: files{"p.rego": text("a")}, next: files{"p.rego": text("a"), "q.rego": fails}, packages: []string{"q"},
			want: v1alpha1.RolloutEvidence{Complete: true, Subjects: 4, Errors: 4}, added: v1alpha1.RolloutEvidence{Subjects: 4, Errors: 4},
		},
		"a package is removed": {
			active: files{"p.rego": text("a"), "q.rego": q}, next: files{"p.rego": text("a")}, packages: []string{"q"}, want: v1alpha1.RolloutEvidence{Complete: true, Gone: 2},
		},
		"a package with a FleetPolicy is removed": {
			active: files{"p.rego": text("a"), "q.rego": q}, next: files{"p.rego": text("a")}, packages: []string{"q"}, policies: []string{"q"}, none: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			beside := policy.Beside(loadFiles(c.active), []policy.Candidate{{Source: "team", Set: loadFiles(c.next)}})
			var list []*v1alpha1.FleetPolicy
			for _, of := range c.policies {
				fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: of}, Spec: v1alpha1.FleetPolicySpec{Package: of}}
				if strings.Contains(of, "/") {
					fp.Spec.Package, fp.Spec.Constraint = pkg, of
				}
				list = append(list, fp)
			}
			is := evaluated(t, beside, aggregate.Synced, "a", "b", "b", "other")
			if all, added, any := evidenceOf(is, beside, c.packages, list); any == c.none || all != c.want || added != c.added {
				t.Errorf("%t, %+v of which %+v are of what is added, want %+v and %+v", any, all, added, c.want, c.added)
			}
			if all, _, any := evidenceOf(nil, beside, c.packages, list); any == c.none || all.Complete {
				t.Errorf("before anything is evaluated: %t, %+v", any, all)
			}
			is = evaluated(t, beside, aggregate.Syncing, "a")
			if all, _, _ := evidenceOf(is, beside, c.packages, list); all.Complete {
				t.Errorf("complete before all is read: %+v", all)
			}
		})
	}
}
