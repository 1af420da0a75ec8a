package module_test

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

// two is the header with another kind.
var two = strings.Replace(header, `["Pod"]`, `["Pod", "Deployment.apps"]`, 1)

// views begins a policy whose view is read.
const views = header + "view.v[input.ref.name] contains 1\n"

// lints are policies that are warned of, or that the engine would refuse, with the place
// of the finding, and a twin of each that is not.
var lints = []struct{ name, code, at, bad, good string }{
	{"no title", "no-title", "p.rego:1:1", edited("# title: A policy\n", "") + body, header + body},
	{"no description", "no-description", "p.rego:1:1", edited("# description: It is tried.\n", "") + body, header + body},
	{"an unknown key", "custom-key", "p.rego:1:1", custom("kind: Pod"), custom("remedies: []")},
	{"two kinds without a look", "no-kind-guard", "p.rego:9:1", two + body, two + "violation contains {\"msg\": \"x\"} if { input.ref.kind == \"Pod\"; input.object.spec }\n" + "violation contains {\"msg\": \"y\"} if { input.ref.kind == \"Deployment.apps\"; input.object.spec }\n"},
	{"two kinds, of which all have what is read", "no-kind-guard", "p.rego:9:1", two + body, two + "violation contains {\"msg\": \"x\"} if input.object.metadata.labels.x\n"},
	{"a kind that never comes", "kind-undeclared", "p.rego:9:1", two + "violation contains {\"msg\": \"x\"} if input.ref.kind in {\"Pod\", \"Service\"}\n", two + "violation contains {\"msg\": \"x\"} if input.ref.kind in {\"Pod\", \"Deployment.apps\"}\n"},
	{"a kind that no rule takes", "kind-unmatched", "p.rego:1:1", two + "violation contains {\"msg\": \"x\"} if input.object.kind == \"Pod\"\n", two + "violation contains {\"msg\": \"x\"} if input.object.kind == \"Pod\"\nviolation contains {\"msg\": \"x\"} if input.object.kind == \"Deployment\"\n"},
	{"a view that nobody reads", "unused-view", "p.rego:9:1", views + body, views + "violation contains {\"msg\": \"x\"} if data.fleet.views.p.v[input.ref.name]\n"},
	{"a view that is no subject", "unused-view", "p.rego:9:1", views + body, edited("package p", "#   subject: view.v\npackage p") + "view.v[input.ref.name] contains 1\nviolation contains {\"msg\": \"x\"} if input.key\n"},
	{"remedies that no rule has", "remedy-unused", "p.rego:1:1", custom("remedies: [{action: patch, kind: Pod}]"), remedied(`"action": "patch"`)},
	{"a remedy of another action", "remedy-undeclared", "p.rego:9:62", remedied(`"action": "delete"`), remedied(`"action": "patch"`)},
	{"a remedy without action", "remedy-action", "p.rego:9:62", remedied(`"patch": {}`), remedied(`"action": "patch", "patch": {}`)},
	{"a remedy without target", "remedy-target", "p.rego:10:62", strings.Replace(remedied(`"action": "patch"`), "#   remedies", "#   subject: member\n#   remedies", 1), remedied(`"action": "patch"`)},
	{"values of a Secret", "remedy-values", "p.rego:9:79", valued("Secret", `"patch": {"metadata": {}, "stringData": {}}`), valued("Secret", `"patch": {"metadata": {"labels": {"data": "x"}}}`)},
	{"values of a ConfigMap by a JSON patch", "remedy-values", "p.rego:9:79", valued("ConfigMap", `"patch": [{"op": "add", "path": "/data/a", "value": "b"}]`), valued("ConfigMap", `"patch": [{"op": "add", "path": "/metadata/labels/data", "value": "b"}]`)},
	{"values of another kind's target", "remedy-values", "p.rego:9:79", valued("ConfigMap", `"patch": {"data": {}}, "target": {"kind": input.ref.kind}`), valued("ConfigMap", `"patch": {"data": {}}, "target": {"kind": "Widget.example.com"}`)},
	{"a remedy of a view without target", "remedy-target", "p.rego:", strings.Replace(remedied(`"action": "patch"`), "#   remedies", "#   subject: view.v\n#   remedies", 1) + "view.v[input.ref.name] contains 1\n", strings.Replace(remedied(`"action": "patch", "target": input.entries[0].ref`), "#   remedies", "#   subject: view.v\n#   remedies", 1) + "view.v[input.ref.name] contains 1\n"},
	{"a remedy within details", "remedy-action", "p.rego:9:55", edited("\npackage p\n\n", "\n#   remedies: [{action: patch, kind: Pod}]\npackage p\n") + "violation contains {\"msg\": \"x\", \"details\": {\"remedy\": {}}} if input.object.x\n", remedied(`"action": "patch"`)},
	{"a parameter that is required", "needs-binding", "p.rego:1:1", custom("parameters: {required: [a], properties: {a: {}}}"), custom("parameters: {required: [a], properties: {a: {default: 1}}}")},
	{"every member", "unbound-member", "p.rego:9:36", holds("data.fleet.objects.Pod[_].x.y"), holds("data.fleet.objects.Pod[input.ref.member].x.y")},
	{"every name", "unbound-name", "p.rego:9:36", holds("data.fleet.by_name.Pod.x[_][input.ref.member]"), holds("data.fleet.by_name.Pod.x[input.ref.name][_]")},
	{"an object whose keys are not constant", "interpreted", "p.rego:9:", holds("{input.ref.name: _, \"b\": 1} = input.object.y"), holds("{\"a\": _, \"b\": 1} = input.object.y")},
	{"every external document", "external-scan", "p.rego:9:36", holds(`data.fleet.external.cmdb[_]`), holds(`data.fleet.external.cmdb[input.ref.name]`)},
	{"every key", "view-scan", "p.rego:10:36", views + "violation contains {\"msg\": \"x\"} if data.fleet.views.p.v[_][_]\n", views + "violation contains {\"msg\": \"x\"} if data.fleet.views.p.v[input.ref.name][_]\n"},
	{"a nested call", "not-hoisted", "p.rego:9:36", holds("not f(g(input.object))") + "f(x) if x == 1\ng(x) := x.deep\n", holds("not f(input.object)") + "f(x) if g(x) == 1\ng(x) := x.deep\n"},
	{"a compared call", "not-hoisted", "p.rego:9:36", holds("not g(input.object) == 1") + "g(x) := x.deep\n", holds("not g(input.object) == 1") + "g(x) := object.get(x, \"deep\", 0)\n"},
	{"a call in a literal", "not-hoisted", "p.rego:9:36", holds("not f([g(input.object)])") + "f(x) if count(x) == 1\ng(x) := x.deep\n", holds("not f([g(input.object)])") + "f(x) if count(x) == 1\ng(x) := [y | y := x.deep]\n"},
	{"a call with a condition", "not-hoisted", "p.rego:9:36", holds("not g(input.object) in [1]") + "g(x) := 1 if x.deep\n", holds("not g(input.object) in [1]") + "g(x) := 1 if x.deep\ndefault g(_) := 0\n"},
	{"a call with an else", "not-hoisted", "p.rego:9:36", holds("not g(input.object) in [1]") + "g(x) := 1 if { x.deep } else := 2 if { x.flat }\n", holds("not g(input.object) in [1]") + "g(x) := 1 if { x.deep } else := 2\n"},
	{"a call of a call", "not-hoisted", "p.rego:9:36", holds("not g(input.object) == 1") + "g(x) := h(x)\nh(x) := max([y | some y in x.list])\n", holds("not g(input.object) == 1") + "g(x) := h(x)\nh(x) := count([y | some y in x.list])\n"},
	{"a call within every", "not-hoisted", "p.rego:9:67", holds("every y in input.object.list { not f(g(y)) }") + "f(x) if x == 1\ng(x) := x.deep\n", holds("every y in input.object.list { not f(y) }") + "f(x) if x == 1\n"},
	{"a call in a helper", "not-hoisted", "p.rego:10:7", holds("ok") + "ok if not g(input.object) == 1\ng(x) := x.deep\n", holds("ok") + "ok if not is(g(input.object))\nis(x) if \"a\" in x\ng(_) := names\nnames contains input.object.x\n"},
	{"a path that is compared", "not-hoisted", "p.rego:9:36", holds("not input.object.spec.n > 1"), holds("not input.object.spec.n == 1")},
	{"a path that a builtin is given", "not-hoisted", "p.rego:9:36", holds("not startswith(input.object.spec.x, \"a\")"), holds("not startswith(input.object.metadata.name, \"a\")")},
	{"a path that a function is given", "not-hoisted", "p.rego:9:36", holds("not f(input.object.spec.x)") + "f(x) if x == \"a\"\n", holds("not f") + "f if input.object.spec.x == \"a\"\n"},
	{"a path of a member test", "not-hoisted", "p.rego:9:36", holds("not \"a\" in input.object.spec.list"), holds("not \"a\" in object.get(input.object, [\"spec\", \"list\"], [])")},
	{"a path that is needed elsewhere", "not-hoisted", "p.rego:9:38", holds("{ not input.object.spec.n > 1; object.get(input.object, \"a\", 0) == 0 }"), holds("{ not input.object.spec.n > 1; input.object.spec.n < 9 }")},
	{"a path that only a comprehension has", "not-hoisted", "p.rego:9:38", holds("{ not input.object.spec.n > 1; count([x | x := input.object.spec.n]) < 2 }"), holds("{ not input.object.spec.n > 1; [x | x := 1] == [input.object.spec.n] }")},
	{"a path in a comprehension", "not-hoisted", "p.rego:9:47", holds("count([1 | not input.object.spec.n > 1]) > 0"), holds("{ count([1 | not input.object.spec.n > 1]) > 0; input.object.spec.n }")},
	{"a path within every", "not-hoisted", "p.rego:9:67", holds("every y in input.object.list { not input.object.n > y }"), holds("every y in input.object.list { not object.get(input.object, \"n\", 0) > y }")},
	{"a path of an index", "not-hoisted", "p.rego:9:36", holds("not input.object.metadata.labels[input.object.spec.x]"), holds("not input.object.metadata.labels[input.ref.name]")},
	{"a path of an else", "not-hoisted", "p.rego:10:27", holds("ok") + "ok if input.object.spec.x else := true if not input.object.spec.n > 1\n", holds("ok") + "ok if input.object.spec.x else := true if not input.object.spec.n == 1\n"},
	{"a parameter without default", "not-hoisted", "p.rego:", parametrised("{properties: {n: {}}}"), parametrised("{properties: {n: {default: 1}}}")},
	{"a parameter that is not required", "not-hoisted", "p.rego:", parametrised("{properties: {n: {}}}"), parametrised("{required: [n], properties: {n: {}}}")},
	{"a pattern for an argument", "not-hoisted", "p.rego:9:36", holds("not g(input.ref.name, 1) == 1") + "g(\"a\", x) := x\n", holds("not g(input.ref.name, 1) == 1") + "g(_, x) := x\n"},
}

// parametrised is a policy that negates something about a parameter.
func parametrised(schema string) string {
	return strings.Replace(custom("parameters: "+schema), "input.object.spec\n", "not input.parameters.n > 1\n", 1)
}

// remedied is a policy with a remedy.
func remedied(fields string) string {
	return edited("\npackage p\n\n", "\n#   remedies: [{action: patch, kind: Pod}]\npackage p\n") +
		"violation contains {\"msg\": \"a remedy is proposed\", \"remedy\": {" + fields + "}}\n"
}

// valued is a policy with a remedy that patches a kind.
func valued(kind, fields string) string {
	return edited("\npackage p\n\n", "\n#   remedies: [{action: patch, kind: "+kind+"}, {action: patch, kind: Widget.example.com}]\npackage p\n") +
		"violation contains {\"msg\": \"a remedy\", \"remedy\": {\"action\": \"patch\", " + fields + "}}\n"
}

func TestLint_WarnsOfRulesButNotTheirCounterparts(t *testing.T) {
	for _, test := range lints {
		t.Run(test.name, func(t *testing.T) {
			severity := module.SeverityWarning
			if strings.HasPrefix(test.name, "a remedy of") || strings.HasPrefix(test.name, "a remedy without") {
				severity = module.SeverityError
			}
			found := func(text string) (string, bool) {
				set, err := load(t, "p.rego", text)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range module.Lint(set) {
					if f.Code == test.code {
						return f.String(), f.Severity == severity && len(f.Message) > 10
					}
				}
				return fmt.Sprint(module.Lint(set)), false
			}
			if got, ok := found(test.bad); !ok || !strings.HasPrefix(got, test.at) {
				t.Errorf("got  %v\nwant %s at %s", got, test.code, test.at)
			}
			if got, ok := found(test.good); ok {
				t.Errorf("the twin is warned of: %v", got)
			}
		})
	}
}

// TestLint_WarnsOfPackagesWithoutTests tries each way in which a test names a package.
func TestLint_WarnsOfPackagesWithoutTests(t *testing.T) {
	for _, test := range []struct {
		file, text string
		want       bool
	}{
		{"q_test.rego", "package q_test\n\ntest_x if 1 == 1\n", true},
		{"p.md", "", true},
		{"p_test.rego", "package p_test\n\nimport data.p\n\ntest_x if count(p.violation) == 0 with input as {}\n", false},
		{"p_test.rego", "package p_test\n\ntest_x if count(data.p.violation) == 0 with input as {}\n", false},
		{"p_test.rego", "package p\n\ntest_x if count(violation) == 0 with input as {}\n", false},
	} {
		set, err := load(t, "p.rego", header+body, test.file, test.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(fmt.Sprint(module.Lint(set)), "p.rego:1:1: warning: package p has no test [no-tests]"); got != test.want {
			t.Errorf("%s: %v", test.text, module.Lint(set))
		}
	}
}
