package hub

import (
	"fmt"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// readFrom is a library that names each package's source after it.
type readFrom struct{ Library }

func (readFrom) Origin(pkg string) Origin { return Origin{Source: pkg} }

// TestReports_AreOfVersionsInEffect: results say the severity and the origin of the version that is in effect in their member.
func TestReports_AreOfVersionsInEffect(t *testing.T) {
	t.Parallel()
	load := func(severity string) *policy.Set {
		text := "# METADATA\n# title: x\n# custom: {severity: " + severity + ", kinds: [\"Pod\"]}\npackage p\n\nviolation contains {\"msg\": \"" + severity + "\"} if input.ref.name\n"
		set, err := policy.Load([]policy.Source{{Name: "team", Files: []policy.File{{Path: "p.rego", Data: []byte(text)}}}}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := policy.Beside(load("low"), []policy.Candidate{{Source: "team", Set: load("high")}})
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"fleet/a", "fleet/b"} {
		if err := index.PutMember(aggregate.Member{Name: m, UID: m}); err != nil {
			t.Fatal(err)
		}
		scope, err := index.OpenScope(m, "Pod", "v1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := scope.Replace([]aggregate.Item{scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "web", ResourceVersion: "1", Body: []byte(`{}`)})}, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
	}
	engine, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "p", Package: "p", Next: &policy.Next{
		Binding: policy.Binding{Name: "p", Package: set.Candidate("p")}, Members: []policy.MemberSelector{{Names: []string{"fleet/b"}}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Reset(t.Context(), index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	r := &Reports{opts: ReportsOptions{Library: readFrom{}, PerMember: 10}}
	results := map[string]*memberResults{"fleet/a": {}, "fleet/b": {}}
	for _, severity := range slices.Backward(policy.Severities()) {
		r.collect(engine.State(), "p", severity, results)
	}
	for member, want := range map[string]string{"fleet/a": "low low p p", "fleet/b": "high high p " + set.Candidate("p")} {
		m := results[member]
		if len(m.results) != 1 || m.total.Fail != 1 {
			t.Fatalf("%s: %+v", member, m)
		}
		if x := m.results[0]; fmt.Sprint(x.Severity, " ", x.Description, " ", x.Rule, " ", x.Properties["source"]) != want {
			t.Errorf("%s: %+v, want %s", member, x, want)
		}
	}
}
