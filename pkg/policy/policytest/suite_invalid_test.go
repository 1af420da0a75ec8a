package policytest_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"federator.dev/federator/pkg/policy/policytest"
)

// TestRun_SuiteOfInvalidConstraints has constraints that Gatekeeper refuses, and one that
// it takes.
func TestRun_SuiteOfInvalidConstraints(t *testing.T) {
	t.Parallel()
	template := strings.Replace(suiteTemplate, "kind: UniqueHost}", "kind: UniqueHost}, validation: {openAPIV3Schema: {type: object, properties: {max: {type: integer}}}}", 1)
	constraint := "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: UniqueHost\nmetadata: {name: all}\nspec: {parameters: {"
	suite := "kind: Suite\napiVersion: test.gatekeeper.sh/v1alpha1\ntests:\n"
	tree := fstest.MapFS{"template.yaml": {Data: []byte(template)}, "web.yaml": {Data: []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n")}}
	for _, c := range []struct{ name, parameters string }{{"mistyped", "max: many"}, {"unknown", "maximum: 1"}, {"valid", "max: 1"}} {
		tree[c.name+".yaml"] = &fstest.MapFile{Data: []byte(constraint + c.parameters + "}}\n")}
		suite += "- {name: " + c.name + ", template: template.yaml, constraint: " + c.name + ".yaml, invalid: true}\n"
	}
	suite += "- {name: used, template: template.yaml, constraint: unknown.yaml, cases: [{name: web, object: web.yaml, assertions: [{violations: no}]}]}\n"
	tree["suite.yaml"] = &fstest.MapFile{Data: []byte(suite)}
	r, err := policytest.Run(t.Context(), tree, policytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]policytest.Outcome{"mistyped": policytest.Passed, "unknown": policytest.Passed, "valid": policytest.Failed, "used/web": policytest.Errored}
	for _, c := range r.Cases {
		if c.Outcome != want[c.Name] {
			t.Errorf("%s: %s %v, want %s", c.Name, c.Outcome, c.Failures, want[c.Name])
		}
		if c.Name == "used/web" && !strings.Contains(c.Failures[0].Message, "unknown.yaml:4: error: spec.parameters.maximum is not in the schema") {
			t.Errorf("%s: %v", c.Name, c.Failures)
		}
	}
	if len(r.Cases) != len(want) {
		t.Errorf("%d cases", len(r.Cases))
	}
}
