package policytest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// twoFleets are two cases of one policy, of which only one has a violation.
func twoFleets(t *testing.T) (*policy.Set, []*fixture) {
	t.Helper()
	source := policy.Source{Files: []policy.File{{Path: "a/a.rego", Data: []byte(`# METADATA
# title: x
# custom: {severity: low, kinds: [Namespace]}
package federator.a

violation contains {"msg": "no owner"} if not input.object.metadata.labels.owner
`)}}}
	set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &fixtureReader{set: set}
	fleets := r.file("a/a_fleet.yaml", []byte(`name: one
members: [{name: fleet/a, labels: {a: b}, objects: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]}]
expect: []
---
name: two
members: [{name: fleet/a, objects: [{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {owner: x}}}, {apiVersion: v1, kind: Namespace, metadata: {name: pay, labels: {owner: x}}}]}]
expect: []
`))
	if len(r.errors) > 0 || len(fleets) != 2 {
		t.Fatal(r.errors)
	}
	return set, fleets
}

func TestFixture_ComparesReplayWithFullEvaluation(t *testing.T) {
	set, fleets := twoFleets(t)
	opts := policy.EngineOptions{Set: set, Bindings: fleets[0].bindings}
	one, err := fleets[0].evaluateWhole(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	two, err := fleets[1].replay(t.Context(), opts, rand.New(rand.NewPCG(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if got := fleets[0].diff(one, one, 1); len(got) > 0 {
		t.Errorf("a state differs from itself: %v", got)
	}
	var lines []string
	for _, f := range fleets[0].diff(one, two, 7) {
		lines = append(lines, f.String())
	}
	got, want := strings.Join(lines, "\n"), `a/a_fleet.yaml:1: replaying the changes of the fleet (seed 7) gives a different verdict than evaluating it at once: fleet/a Namespace /pay of federator.a: expected no verdict, found Known and clean
a/a_fleet.yaml:1: replaying the changes of the fleet (seed 7) gives a different verdict than evaluating it at once: fleet/a Namespace /shop of federator.a: expected Known with "no owner", found Known and clean`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFleet_ShuffledStepsEndAtTheSameFleet(t *testing.T) {
	_, fleets := twoFleets(t)
	for _, f := range fleets {
		straight, err := newWriter()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range f.fleet.steps(straight) {
			if err := s.do(); err != nil {
				t.Fatal(err)
			}
		}
		want := contents(t, straight.index.Snapshot())
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 0))
			w, err := newWriter()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range shuffle(f.fleet.shuffledSteps(w, r), r) {
				if err := s.do(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if got := contents(t, w.index.Snapshot()); got != want {
				t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, got, want)
			}
		}
	}
}

// contents writes what a snapshot holds, without revisions.
func contents(t *testing.T, s *aggregate.Snapshot) string {
	t.Helper()
	var b strings.Builder
	for m := range s.Members() {
		text, err := canonicalJSON(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	for sc := range s.Scopes("") {
		b.WriteString(sc.Member + " " + string(sc.Kind) + " " + sc.Version + " " + sc.Status.State.String() + "\n")
		objects, err := s.List(aggregate.Query{Kind: sc.Kind, Members: []string{sc.Member}})
		if err != nil {
			t.Fatal(err)
		}
		for o := range objects {
			body, err := o.AppendBody(nil)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(body, '\n'))
		}
	}
	return b.String()
}
