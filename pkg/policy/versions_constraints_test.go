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

// bothFind checks that each version of a package finds something where it is in effect, by a constraint.
func bothFind(t *testing.T, set *policy.Set, pkg, constraint string) {
	t.Helper()
	b := policy.Binding{Name: constraint, Package: pkg, Constraint: constraint, Next: &policy.Next{
		Binding: policy.Binding{Name: constraint, Package: set.Candidate(pkg), Constraint: constraint}, Members: in("fleet/b"),
	}}
	e, _ := engineOn(t, versionWorld(t), policy.EngineOptions{Set: set, Bindings: []policy.Binding{b}})
	of := map[string]string{}
	for v := range e.State().Findings(constraint, "") {
		of[v.Version] += fmt.Sprintf(" %s %q", v.Subject.Ref.Member, v.Violations[0].Msg)
	}
	if len(of) != 2 {
		t.Errorf("what the versions find is %q", of)
	}
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
	bothFind(t, set, x, name)
}

// loadAdmission loads a ValidatingAdmissionPolicy with a message, and a binding of it that selects Deployments by name.
func loadAdmission(t testing.TB, message, name string) *policy.Set {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: first}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: ['*'], resources: [deployments], operations: ['*']}]}
  validations: [{expression: "false", message: %s}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: all}
spec:
  policyName: first
  validationActions: [Deny]
  matchResources: {excludeResourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], operations: ['*'], resourceNames: [%s]}]}
`, message, name)
	set, err := policy.Load([]policy.Source{{Name: "one", Files: []policy.File{{Path: "p.yaml", Data: []byte(text)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestVersions_OfAdmissionPolicies lets commits differ in a policy, and in a binding alone.
func TestVersions_OfAdmissionPolicies(t *testing.T) {
	t.Parallel()
	active := loadAdmission(t, "old", "nobody")
	const x, name = "admission.first", "ValidatingAdmissionPolicyBinding/all"
	versions := map[string]bool{active.Version(x): true}
	for _, candidate := range []*policy.Set{loadAdmission(t, "new", "nobody"), loadAdmission(t, "old", "somebody")} {
		set := policy.Beside(active, []policy.Candidate{{Source: "one", Set: candidate}})
		if v := candidate.Version(x); versions[v] || set.Candidate(x) != x+"@"+v {
			t.Errorf("the candidate %s is version %s", set.Candidate(x), v)
		} else {
			versions[v] = true
		}
		bothFind(t, set, x, name)
	}
}

// TestEngine_FollowsAnEditedAdmissionBinding configures an engine with a binding that selects otherwise.
func TestEngine_FollowsAnEditedAdmissionBinding(t *testing.T) {
	t.Parallel()
	const name = "ValidatingAdmissionPolicyBinding/all"
	options := func(set *policy.Set) policy.EngineOptions {
		bindings, _ := policy.DefaultBindings(set, nil)
		return policy.EngineOptions{Set: set, Bindings: bindings}
	}
	w := versionWorld(t)
	e, _ := engineOn(t, w, options(loadAdmission(t, "old", "nobody")))
	all := len(messages(e.State(), name))
	for _, excluded := range []string{"web", "nobody"} {
		o := options(loadAdmission(t, "old", excluded))
		if _, err := e.Configure(t.Context(), o.Set, o.Bindings); err != nil {
			t.Fatal(err)
		}
		fresh, err := policy.Evaluate(t.Context(), o, e.State().Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		wantMessages(t, e.State(), name, messages(fresh, name)...)
		if n := len(messages(fresh, name)); (n == all) != (excluded == "nobody") {
			t.Errorf("without %s there are %d of %d", excluded, n, all)
		}
	}
}
