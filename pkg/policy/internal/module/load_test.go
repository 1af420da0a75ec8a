package module_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

// header begins a policy of package p.
const header = `# METADATA
# title: A policy
# description: It is tried.
# custom:
#   severity: high
#   kinds: ["Pod"]
package p

`

// load loads files, each "path" then "text".
func load(t testing.TB, files ...string) (*module.Set, error) {
	t.Helper()
	var s module.Source
	for i := 0; i < len(files); i += 2 {
		s.Files = append(s.Files, module.File{Path: files[i], Data: []byte(files[i+1])})
	}
	return module.Load([]module.Source{s}, module.Options{})
}

func TestLoad_ReadsAPackage(t *testing.T) {
	set, err := load(t, "net/hosts.rego", `# METADATA
# title: One host, one member
# description: An Ingress host is served from one member only.
# custom:
#   severity: high
#   kinds: ["HTTPRoute.v1.gateway.networking.k8s.io", "Ingress.networking.k8s.io"]
#   subject: view.hosts
#   remedies:
#     - {action: patch, kind: Ingress.networking.k8s.io}
#   parameters:
#     properties:
#       limit: {type: integer, default: 1}
package federator.network.hosts

# What one object contributes.
view.hosts[host] contains {"class": object.get(input.object.spec, "ingressClassName", "")} if {
	some rule in input.object.spec.rules
	host := rule.host
}

violation contains {"msg": sprintf("host %s is served %d times", [input.key, count(input.entries)])} if {
	count(input.entries) > input.parameters.limit
}
`, "net/hosts_test.rego", `package federator.network.hosts_test

import data.federator.network.hosts

test_one if count(hosts.violation) == 0 with input as {"key": "a", "entries": [], "parameters": {"limit": 1}}
`, "net/hosts_fleet.yaml", "members: []", "README.md", "#")
	if err != nil {
		t.Fatal(err)
	}
	p := set.Package("federator.network.hosts")
	if p == nil || len(set.Packages) != 1 || set.Package("federator") != nil {
		t.Fatalf("packages %v", set.Packages)
	}
	got := fmt.Sprintf("%s|%s|%s|%v|%d|%s|%v|%s|%d", p.Title, p.Severity, p.File, p.Kinds, p.Subject, p.SubjectView, p.Remedies, p.View("hosts").Mask, p.View("hosts").Row)
	want := "One host, one member|high|net/hosts.rego|[HTTPRoute.v1.gateway.networking.k8s.io Ingress.networking.k8s.io]|2|hosts|" +
		"[{patch Ingress.networking.k8s.io}]|spec.ingressClassName.**, spec.rules[].host.**|16"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(set.Modules) != 1 || len(set.Tests) != 1 || fmt.Sprint(set.Skipped) != "[README.md net/hosts_fleet.yaml]" {
		t.Errorf("modules %d, tests %d, skipped %v", len(set.Modules), len(set.Tests), set.Skipped)
	}
	if kinds, anyKind := set.Kinds(); len(kinds) != 2 || anyKind {
		t.Errorf("kinds %v, any %v", kinds, anyKind)
	}
}

// refusals are policies that are refused, by the code and place of the finding.
var refusals = []struct{ name, want, text string }{
	{"syntax", "p.rego:9:", header + "violation contains {"},
	{"unknown builtin", "[compile]", header + `violation contains {} if http.send({}).x`},
	{"the clock", "undefined function time.now_ns: a verdict", header + `violation contains {} if time.now_ns() > 1`},
	{"unused variables", "[compile]", header + "violation contains {} if { x := 1 }"},
	{"data as a value", "[compile]", header + `violation contains {} if data == 1`},
	{"a step into data that is unknown", "[compile]", header + `violation contains {} if data[input.ref.kind]`},
	{"the fleet as a value", "[data]", header + `violation contains {} if { x := data.fleet; x }`},
	{"all objects as a value", "[data]", header + `violation contains {} if count(data.fleet.objects) > 1`},
	{"a whole kind as a value", "[data]", header + `violation contains {} if count(data.fleet.objects.Pod) > 1`},
	{"a whole kind by name as a value", "[data]", header + `violation contains {} if { x := data.fleet.by_name["Pod"]; x.a }`},
	{"a kind that is no constant", "[kind]", header + `violation contains {} if data.fleet.objects[input.ref.kind][input.ref.member]`},
	{"a kind in a variable", "[kind]", header + `violation contains {} if { k := "Pod"; data.fleet.objects[k].m }`},
	{"a kind that is none", "[kind]", header + `violation contains {} if data.fleet.objects["a b"].m`},
	{"an unknown section", "[data]", header + `violation contains {} if data.fleet.stuff.x`},
	{"all views as a value", "[data]", header + `violation contains {} if data.fleet.views`},
	{"a view of a package that is none", "[view]", header + `violation contains {} if data.fleet.views.q.v.x`},
	{"a view that is no constant", "[view]", header + `violation contains {} if data.fleet.views.p[input.ref.name].x`},
	{"another policy's rules", "[data]", header + `violation contains {} if data.q.x`},
	{"its own rule that is none", "[undefined]", header + `violation contains {} if data.p.x`},
	{"with", "[with]", header + "violation contains {} if ok with input as {}\nok if input.object"},
	{"input that an object has not", "9:26: error: input.objct: the subject object has no such input [input]", header + `violation contains {} if input.objct.spec`},
	{"violation that is no set", "[violation]", header + `violation := true`},
	{"violation by key", "[violation]", header + `violation["x"] := true`},
	{"neither violation nor view", "[violation]", header + `x := 1`},
	{"a view that is no set", "[view]", header + "view.v[k] := 1 if k := input.ref.name\nviolation contains {} if input.ref"},
	{"a view without a key", "[view]", header + "view.v contains 1 if input.ref\nviolation contains {} if input.ref"},
	{"a view of two keys", "[view]", header + "view.v[a][b] contains 1 if { a := input.ref.name; b := a }\nviolation contains {} if input.ref"},
	{"a view that is a constant", "[view]", header + "view := 1\nviolation contains {} if input.ref"},
	{"a view that reads the member", "9:40: error: input.member: a view has no such input [view-reads]", header + `view.v[input.ref.name] contains 1 if { input.member.labels.a }`},
	{"a view that reads parameters in a function", "10:9: error: input.parameters: a view has no such input [view-reads]", header + "view.v[input.ref.name] contains 1 if f(input.object)\nf(x) if input.parameters.a == x"},
	{"a view that reads the fleet in a rule", "[view-reads]", header + "view.v[input.ref.name] contains 1 if count(names) > 0\nnames := [n | some n in data.fleet.names]"},
	{"a view that reads the whole input", "[view-reads]", header + `view.v[input.ref.name] contains input if input.object`},
	{"no METADATA", "p.rego:1:1: error: package p has no METADATA", "package p\n\nviolation contains {} if input.object.spec"},
	{"a bad severity", `p.rego:5:1: error: custom.severity is "urgent"`, strings.Replace(header, "high", "urgent", 1) + `violation contains {} if input.object.spec`},
	{"no severity", "[severity]", strings.Replace(header, "#   severity: high\n", "", 1) + `violation contains {} if input.object.spec`},
	{"no kinds", "[kinds]", strings.Replace(header, "#   kinds: [\"Pod\"]\n", "", 1) + `violation contains {} if input.object.spec`},
	{"a bad kind", `p.rego:6:1: error: custom.kinds: "pods/exec"`, strings.Replace(header, "Pod", "pods/exec", 1) + `violation contains {} if input.object.spec`},
	{"any kind and another", "[kinds]", strings.Replace(header, `"Pod"`, `"*", "Pod"`, 1) + `violation contains {} if input.object.spec`},
	{"a subject that is none", "[subject]", strings.Replace(header, "package", "#   subject: namespace\npackage", 1) + `violation contains {} if input.object.spec`},
	{"a subject view that is none", "[subject]", strings.Replace(header, "package", "#   subject: view.hosts\npackage", 1) + `violation contains {} if input.key`},
	{"a remedy of an unknown verb", `[remedies]`, strings.Replace(header, "package", "#   remedies: [{action: replace, kind: Pod}]\npackage", 1) + `violation contains {} if input.object.spec`},
	{"parameters that are no schema", `[parameters]`, strings.Replace(header, "package", "#   parameters: {type: object, properties: {a: {type: whole}}}\npackage", 1) + `violation contains {} if input.object.spec`},
	{"a schema that refers", `[parameters]`, strings.Replace(header, "package", "#   parameters: {properties: {a: {$ref: 'http://example.com'}}}\npackage", 1) + `violation contains {} if input.object.spec`},
	{"a default of another type", `[parameters]`, strings.Replace(header, "package", "#   parameters: {properties: {a: {type: integer, default: x}}}\npackage", 1) + `violation contains {} if input.object.spec`},
	{"package fleet", "[package]", strings.Replace(header, "package p", "package fleet.p", 1) + `violation contains {} if input.object.spec`},
	{"a package that is no identifier", "[package]", strings.Replace(header, "package p", `package p["a-b"]`, 1) + `violation contains {} if input.object.spec`},
}

func TestLoad_Refuses(t *testing.T) {
	for _, test := range refusals {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, "p.rego", test.text)
			var list module.Errors
			if !errors.As(err, &list) {
				t.Fatalf("%v is no module.Errors", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
			for _, f := range list {
				if f.Line == 0 || f.File != "p.rego" {
					t.Errorf("%+v has no place", f)
				}
			}
		})
	}
}
