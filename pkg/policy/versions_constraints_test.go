package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

const (
	firstTemplate = `{"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "first"}, "spec": {"crd": {"spec": {"names": {"kind": "First"},
		"validation": {"openAPIV3Schema": {"type": "object", "properties": {"word": {"type": "string"}}}}}},
		"targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package x\n\nviolation[{\"msg\": msg}] {\n  msg := sprintf(\"one %v\", [input.parameters.word])\n}\n"}]}}`
	firstConstraint = `{"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "First", "metadata": {"name": "all"}, "spec": {"match": {"kinds": [{"apiGroups": ["apps"], "kinds": ["Deployment"]}]}, "parameters": {"word": "WORD"}}}`
)

func loadConstraint(t testing.TB, word string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "one", Files: []policy.File{
		{Path: "t.yaml", Data: []byte(firstTemplate)}, {Path: "c.yaml", Data: []byte(strings.ReplaceAll(firstConstraint, "WORD", word))},
	}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestVersions_OfConstraints lets commits differ in a constraint alone: each is a version of its own.
func TestVersions_OfConstraints(t *testing.T) {
	t.Parallel()
	active := loadConstraint(t, "old")
	set := policy.Beside(active, []policy.Candidate{{Source: "one", Set: loadConstraint(t, "new")}})
	later := policy.Beside(active, []policy.Candidate{{Source: "one", Set: loadConstraint(t, "newer")}})
	const x, name = "gatekeeper.first", "First/all"
	if a, b := set.Candidate(x), later.Candidate(x); a == b {
		t.Errorf("two candidates that differ are both %s", a)
	}
	b := policy.Binding{Name: name, Package: x, Constraint: name, Next: &policy.Next{
		Binding: policy.Binding{Name: name, Package: set.Candidate(x), Constraint: name}, Members: in("fleet/b"),
	}}
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{b}})
	of := map[string]string{}
	for v := range e.State().Findings(name, "") {
		of[v.Version] += fmt.Sprintf(" %s %q", v.Subject.Ref.Member, v.Violations[0].Msg)
	}
	if len(of) != 2 {
		t.Errorf("what the versions find is %q", of)
	}
}
