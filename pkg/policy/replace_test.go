package policy_test

import (
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
)

const (
	replaceTemplate = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8snamed}
spec:
  crd: {spec: {names: {kind: K8sNamed}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package k8snamed
      violation[{"msg": "MSG"}] { input.review.object.metadata.name == "x" }
`
	replaceConstraint = `apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sNamed
metadata: {name: named}
spec: {match: {kinds: [{apiGroups: [""], kinds: [ConfigMap]}]}}
`
	replaceRego = "# METADATA\n# title: Own\n# custom: {severity: low, kinds: [ConfigMap]}\npackage own\n\nviolation contains {\"msg\": \"x\"}\n"
)

// TestReplace_KeepsTemplates: what a candidate says nothing of stays, also where it is no Rego; a preview said that
// all constraints of all sources were removed.
func TestReplace_KeepsTemplates(t *testing.T) {
	active, err := policy.Load([]policy.Source{
		{Name: "git", Files: []policy.File{{Path: "template.yaml", Data: []byte(replaceTemplate)}, {Path: "constraint.yaml", Data: []byte(replaceConstraint)}}},
		{Name: "other", Files: []policy.File{{Path: "own.rego", Data: []byte(replaceRego)}}},
	}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := func(s *policy.Set) (out []string) {
		for _, p := range s.Packages {
			out = append(out, p.Name)
		}
		return out
	}
	template := policy.File{Path: "candidate.yaml", Data: []byte(replaceTemplate)}
	for of, with := range map[string]policy.Source{
		"Rego without a source":        {Files: []policy.File{{Path: "own.rego", Data: []byte(replaceRego)}}},
		"Rego of another source":       {Name: "other", Files: []policy.File{{Path: "own.rego", Data: []byte(replaceRego)}}},
		"a template without a source":  {Files: []policy.File{template, {Path: "constraint.yaml", Data: []byte(replaceConstraint)}}},
		"templates of their own":       {Name: "git", Files: []policy.File{template, {Path: "c.yaml", Data: []byte(replaceConstraint)}}},
		"a source's files as they are": active.Sources()[0],
	} {
		set, err := policy.Load(policy.Replace(active, with), policy.LoadOptions{})
		if err != nil {
			t.Errorf("%s: %v", of, err)
			continue
		}
		if got, want := names(set), names(active); !slices.Equal(got, want) {
			t.Errorf("%s: packages %q, want %q", of, got, want)
		}
	}
}

// TestReplace_ReplacesATemplateOfItsKind: without a source a template replaces the one of its kind.
func TestReplace_ReplacesATemplateOfItsKind(t *testing.T) {
	active, err := policy.Load([]policy.Source{{Name: "git", Files: []policy.File{
		{Path: "all.yaml", Data: []byte(replaceTemplate + "---\n" + replaceConstraint)},
	}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte("# a candidate\n" + replaceTemplate + "---\n" + replaceConstraint)
	changed = []byte(strings.ReplaceAll(string(changed), "MSG", "other"))
	if _, err := policy.Load(policy.Replace(active, policy.Source{Files: []policy.File{{Path: "all.yaml", Data: changed}}}), policy.LoadOptions{}); err != nil {
		t.Error(err)
	}
}
