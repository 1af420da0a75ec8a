package policytest_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
)

const suiteTemplate = `
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: uniquehost}
spec:
  crd: {spec: {names: {kind: UniqueHost}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package uniquehost
      violation[{"msg": msg}] {
        other := data.inventory.namespace[ns]["v1"]["Service"][name]
        name != input.review.object.metadata.name
        other.spec.host == input.review.object.spec.host
        msg := sprintf("%v has the host of %v/%v", [input.review.object.metadata.name, ns, name])
      }
`

const suiteText = `
kind: Suite
apiVersion: test.gatekeeper.sh/v1alpha1
tests:
- name: hosts
  template: template.yaml
  constraint: samples/constraint.yaml
  cases:
  - name: alone
    object: samples/web.yaml
    assertions: [{violations: no}]
  - name: another has it
    object: samples/web.yaml
    inventory: [samples/api.yaml]
    assertions:
    - violations: 1
    - violations: yes
      message: "host of shop/api$"
    - violations: 0
      message: nobody
  - name: wrong
    object: samples/web.yaml
    inventory: [samples/api.yaml]
    assertions:
    - violations: 2
    - violations: no
    - message: somebody
  - {name: skipped, skip: true}
  - name: created
    object: samples/created.yaml
    assertions: [{violations: no}]
  - name: deleted
    object: samples/deleted.yaml
    assertions: [{violations: no}]
  - name: two objects
    object: samples/two.yaml
    assertions: [{violations: no}]
  - name: nothing asserted
    object: samples/web.yaml
  - name: not a number
    object: samples/web.yaml
    assertions: [{violations: many}]
  - name: not there
    object: ../../other.yaml
    assertions: [{violations: no}]
- name: later
  template: template.yaml
  constraint: samples/constraint.yaml
  skip: true
`

func suiteTree() fstest.MapFS {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {host: a.example}\n"
	review := "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: {operation: %s, %s: {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}}\n"
	tree := fstest.MapFS{}
	for name, text := range map[string]string{
		"suite.yaml": suiteText, "template.yaml": suiteTemplate,
		"samples/constraint.yaml": "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: UniqueHost\nmetadata: {name: all}\nspec: {match: {kinds: [{apiGroups: [''], kinds: [Service]}]}}\n",
		"samples/web.yaml":        fmt.Sprintf(service, "web"), "samples/api.yaml": fmt.Sprintf(service, "api"),
		"samples/two.yaml":     fmt.Sprintf(service, "web") + "---\n" + fmt.Sprintf(service, "api"),
		"samples/created.yaml": fmt.Sprintf(review, "CREATE", "object"), "samples/deleted.yaml": fmt.Sprintf(review, "DELETE", "oldObject"),
	} {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

func TestRun_SuiteOutcomes(t *testing.T) {
	r, err := policytest.Run(t.Context(), suiteTree(), policytest.Options{Name: "lib"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range r.Cases {
		line := fmt.Sprintf("%d %s %s %s", c.Line, c.Name, c.Outcome, c.Reason)
		for _, f := range c.Failures {
			line += fmt.Sprintf("| %d %s %s %s", f.Line, f.Message, f.Expected, f.Actual)
		}
		got = append(got, strings.TrimSpace(line))
	}
	found := `1: ["web has the host of shop/api"]`
	want := []string{
		"9 hosts/alone pass",
		"12 hosts/another has it pass",
		"21 hosts/wrong fail | 25 an assertion does not hold 2 violations " + found + "| 26 an assertion does not hold no violations " + found +
			`| 27 an assertion does not hold at least one of violations with "somebody" ` + found,
		"28 hosts/skipped skip the suite says skip",
		"29 hosts/created pass",
		"32 hosts/deleted skip the AdmissionReview is of a deletion: an object of a member is judged while it is there",
		"35 hosts/two objects error | 35 samples/two.yaml has 2 objects; it has one",
		"38 hosts/nothing asserted error | 38 a case has an object and assertions",
		"40 hosts/not a number error | 40 violations is many; it is a number, yes or no",
		"43 hosts/not there error | 43 ../../other.yaml is outside of the tree that is tested",
		"46 later skip the suite says skip",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.Total != len(want) || r.Cases[0].File != "lib/suite.yaml" || !r.Cases[0].Suite {
		t.Errorf("%d cases, the first is %+v", r.Total, r.Cases[0])
	}
}

// TestRun_SuitesCoverTemplates: of lines of the file, those which the cases of suites have evaluated.
func TestRun_SuitesCoverTemplates(t *testing.T) {
	for run, missed := range map[string][]int{"hosts/": nil, "hosts/alone$": {11, 13, 14, 15}} {
		r, err := policytest.Run(t.Context(), suiteTree(), policytest.Options{Name: "lib", Coverage: true, Run: regexp.MustCompile(run)})
		if err != nil {
			t.Fatal(err)
		}
		c := r.Coverage
		if len(c.Files) != 1 || c.Files[0].File != "lib/template.yaml" || c.Lines != 5 || c.Covered != 5-len(missed) || !slices.Equal(c.Files[0].Missed, missed) {
			t.Errorf("of cases %s: %+v", run, c)
		}
	}
}

func TestRun_SelectsCasesOfSuites(t *testing.T) {
	r, err := policytest.Run(t.Context(), suiteTree(), policytest.Options{Run: regexp.MustCompile("hosts/alone$")})
	if err != nil || len(r.Cases) != 1 || r.Total != 11 {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestRun_ReportsBrokenSuites(t *testing.T) {
	tree := suiteTree()
	tree["suite.yaml"].Data = []byte("kind: Suite\napiVersion: test.gatekeeper.sh/v1alpha1\ntests: {}\n")
	_, err := policytest.Run(t.Context(), tree, policytest.Options{})
	var list policy.LoadErrors
	if !errors.As(err, &list) || list[0].File != "suite.yaml" {
		t.Errorf("got %v", err)
	}
}

func TestRun_NamesWhatASuiteAsksOfARequest(t *testing.T) {
	tree := suiteTree()
	tree["template.yaml"].Data = celTemplate("request.userInfo.username == 'me'")
	r, err := policytest.Run(t.Context(), tree, policytest.Options{Run: regexp.MustCompile("alone")})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Cases[0]; c.Outcome != policytest.Skipped || !strings.Contains(c.Reason, "reads request.userInfo, which only a request has") {
		t.Errorf("got %+v", c)
	}
}

func TestRun_ExpandsAsGatekeeperDoes(t *testing.T) {
	tree := suiteTree()
	tree["expansion.yaml"] = &fstest.MapFile{Data: []byte(`
apiVersion: expansion.gatekeeper.sh/v1alpha1
kind: ExpansionTemplate
metadata: {name: to-service}
spec:
  applyTo: [{groups: [apps], kinds: [Deployment], versions: [v1]}]
  templateSource: spec.template
  generatedGVK: {group: "", version: v1, kind: Service}
`)}
	tree["samples/web.yaml"].Data = []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {template: {spec: {host: a.example}}}\n")
	tree["suite.yaml"].Data = []byte(`
kind: Suite
apiVersion: test.gatekeeper.sh/v1alpha1
tests:
- name: expanded
  template: template.yaml
  constraint: samples/constraint.yaml
  expansion: expansion.yaml
  cases:
  - name: implied
    object: samples/web.yaml
    inventory: [samples/api.yaml]
    assertions: [{violations: 1, message: "^\\[Implied by to-service\\] web-service has the host of shop/api$"}]
`)
	r, err := policytest.Run(t.Context(), tree, policytest.Options{})
	if err != nil || !r.OK() || len(r.Cases) != 1 {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestRun_JudgesNoReviewByWhatARequestSays reads what only a request has in all ways that there are.
func TestRun_JudgesNoReviewByWhatARequestSays(t *testing.T) {
	for read, want := range map[string]string{
		`input.review["operation"] == "CREATE"`:                             "operation",
		`object.get(input.review, "operation", "") == "CREATE"`:             "operation",
		`r := input.review; f := "uid"; r[f] != ""`:                         "dryRun", // any of them
		`input.review.resource.resource == "services"`:                      "resource",
		`input.review.options.fieldManager == "me"`:                         "options",
		`input.review.dryRun`:                                               "dryRun",
		`input.review.requestSubResource == "scale"`:                        "requestSubResource",
		`input["review"].userInfo.username == "me"`:                         "userInfo",
		`input.review.object.metadata.name == "operation-userInfo"`:         "",
		`input.review.name == "other"; input.review.kind.kind == "Service"`: "",
	} {
		tree := suiteTree()
		tree["template.yaml"].Data = []byte(strings.Replace(suiteTemplate, "other := data", read+"\n        other := data", 1))
		r, err := policytest.Run(t.Context(), tree, policytest.Options{Run: regexp.MustCompile("hosts/created$")})
		if err != nil {
			t.Fatal(err)
		}
		outcome, reason := policytest.Passed, ""
		if want != "" {
			outcome, reason = policytest.Skipped, "reads "+want+" of"
		}
		if c := r.Cases[0]; c.Outcome != outcome || !strings.Contains(c.Reason, reason) {
			t.Errorf("%s: %s %s %v", read, c.Outcome, c.Reason, c.Failures)
		}
	}
}

// TestRun_JudgesNoReviewByWhatCELAsksOfARequest is the same for CEL, which answers what follows from an object.
func TestRun_JudgesNoReviewByWhatCELAsksOfARequest(t *testing.T) {
	for expression, want := range map[string]string{
		"request.operation != 'UPDATE'": "operation", "request.subResource == ''": "subResource", "request.name == 'web'": "",
	} {
		tree := suiteTree()
		tree["template.yaml"].Data = celTemplate(expression)
		r, err := policytest.Run(t.Context(), tree, policytest.Options{Run: regexp.MustCompile("hosts/created$")})
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Cases[0]; (want != "") != (c.Outcome == policytest.Skipped) || !strings.Contains(c.Reason, want) {
			t.Errorf("%s: %s %s %v", expression, c.Outcome, c.Reason, c.Failures)
		}
	}
}

// celTemplate is the template of suiteTree with one validation in CEL.
func celTemplate(expression string) []byte {
	return []byte(`
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: uniquehost}
spec:
  crd: {spec: {names: {kind: UniqueHost}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source: {validations: [{expression: "` + expression + `"}]}
`)
}
