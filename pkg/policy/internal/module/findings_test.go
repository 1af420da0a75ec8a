package module_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/module"
)

// edited returns the header with a part replaced.
func edited(old, text string) string {
	if !strings.Contains(header, old) {
		panic("the header has no " + old)
	}
	return strings.Replace(header, old, text, 1)
}

// custom returns a policy with more METADATA.
func custom(lines string) string {
	return edited("package p", "#   "+lines+"\npackage p") + "violation contains {\"msg\": \"x\"} if input.object.spec\n"
}

const body = "violation contains {\"msg\": \"x\"} if input.object.spec\n"

// holds is a body of one condition.
func holds(condition string) string {
	return header + "violation contains {\"msg\": \"x\"} if " + condition + "\n"
}

// pairs are policies that are refused, with the place and code of the finding, and
// a twin of each that is not.
var pairs = []struct{ name, code, at, bad, good string }{
	{"syntax", "parse", "p.rego:10", header + "violation contains {\n", header + body},
	{"NUL bytes", "parse", "p.rego", header + body + "\x00", header + body},
	{"no UTF-8", "parse", "p.rego", header + "# \xff\n" + body, header + "# é\n" + body},
	{"an empty file", "parse", "p.rego: error: the file is empty", "", header + body},
	{"METADATA that is no YAML", "parse", "p.rego:", edited("title: A policy", "title: {") + body, header + body},
	{"Rego v0", "parse", "p.rego:9:1", header + "violation[{\"msg\": \"x\"}] { input.object.spec }\n", header + body},
	{"the keyword not", "parse", "p.rego:9:8", header + "import future.keywords.not\n" + body, header + "import future.keywords.in\n" + body},
	{"the keyword and", "parse", "p.rego:9:8", header + "import future.keywords.and\n" + body, header + "import future.keywords.contains\n" + body},
	{"the keyword or", "parse", "p.rego:9:8", header + "import future.keywords.or\n" + body, header + "import rego.v1\n" + body},
	{"deep nesting", "parse", "p.rego", holds("x := " + strings.Repeat("[", 1e5)), holds("[[input.object.spec]]")},
	{"deep terms", "too-deep", "p.rego:9:1", holds(strings.Repeat("[", 250) + "input.object" + strings.Repeat("]", 250)), holds(strings.Repeat("[", 150) + "input.object" + strings.Repeat("]", 150))},
	{"a long body", "too-deep", "p.rego:9:1", holds("{" + strings.Repeat("input.object.spec\n", 501) + "}"), holds("{" + strings.Repeat("input.object.spec\n", 400) + "}")},
	{"many rules", "too-many", "p.rego", header + body + strings.Repeat("f(x) := x\n", 5000), header + body + "f(x) := x\n"},
	{"a rule named internal", "reserved", "p.rego:9:1", header + "internal := 1\n" + body, header + "inner := 1\n" + body},
	{"rules under internal", "reserved", "p.rego:9:1", header + "internal.x := 1\n" + body, header + "x.internal := 1\n" + body},
	{"an import named internal", "reserved", "p.rego:9:1", header + "import data.fleet.names as internal\nviolation contains {\"msg\": \"x\"} if input.ref.name in internal\n", header + "import data.fleet.names as inner\nviolation contains {\"msg\": \"x\"} if input.ref.name in inner\n"},
	{"a variable named internal", "compile", "p.rego:9:", holds(`{ some internal in ["a"]; input.ref.name in [internal] }`), holds(`{ some inner in ["a"]; input.ref.name in [inner] }`)},
	{"a name that is no identifier", "package", "p.rego:7:1", edited("package p", `package p["a-b"]`) + body, edited("package p", `package p["ab"]`) + body},
	{"the fleet's own name", "package", "p.rego:7:1", edited("package p", "package fleet.p") + body, edited("package p", "package fleets.p") + body},
	{"no METADATA", "metadata", "p.rego:1:1", "package p\n" + body, header + body},
	{"METADATA of a rule only", "metadata", "p.rego:1:1", "package p\n\n# METADATA\n# title: x\n" + body, header + "# METADATA\n# title: x\n" + body},
	{"an unknown function", "compile", "p.rego:9:36", holds("f(input.object)"), holds("f(input.object)") + "f(x) if x.spec\n"},
	{"a builtin that is not allowed", "compile", "p.rego:9:36", holds(`http.send({"url": "x"})`), holds(`startswith("x", "x")`)},
	{"the clock", "compile", "p.rego:9:36", holds("time.now_ns() > 1"), holds(`time.parse_rfc3339_ns("2026-01-01T00:00:00Z") > 1`)},
	{"the clock beside the helper", "compile", "p.rego:9:36: error: undefined function time.now_ns: a verdict could not be kept up to date with a clock that it reads. Write import data.federator.lib.time, and time.older(", holds("time.now_ns() > 1"), holds(`data.fleet.passed["2026-01-02T15:04:05Z"]`)},
	{"all instants as a value", "instant", "p.rego:9:36", holds(`data.fleet.passed`), holds(`not data.fleet.passed[input.object.spec.until]`)},
	{"all instants counted", "instant", "p.rego:9:42", holds(`count(data.fleet.passed) > 1`), holds(`data.fleet.passed[time.format([time.add_date(0, 1, 2, 3), "UTC", "RFC3339"])]`)},
	{"instants iterated", "instant", "p.rego:9:", holds(`{ some t; data.fleet.passed[t] }`), holds(`{ some t in input.object.spec.times; data.fleet.passed[t] }`)},
	{"instants iterated by some", "instant", "p.rego:9:", holds(`{ some t, p in data.fleet.passed; t != ""; p }`), holds(`{ t := input.object.spec.until; data.fleet.passed[t] }`)},
	{"instants of a wildcard", "instant", "p.rego:9:36", holds(`data.fleet.passed[_]`), holds(`f(input.object.spec.until)`) + "f(t) if data.fleet.passed[t]\n"},
	{"below an instant", "instant", "p.rego:9:36", holds(`data.fleet.passed["2026-01-02T15:04:05Z"].x`), holds(`data.fleet.passed["2026-01-02T15:04:05Z"] == true`)},
	{"an instant that is none", "instant", "p.rego:9:36", holds(`data.fleet.passed["2026-01-02T15:04:05+00:00"]`), holds(`data.fleet.passed["2026-01-02T15:04:05Z"]`)},
	{"all external documents", "external", "p.rego:9:36", holds(`data.fleet.external`), holds(`data.fleet.external.cmdb`)},
	{"an external source that is not constant", "external", "p.rego:9:36", holds(`data.fleet.external[input.ref.name].k`), holds(`data.fleet.external.cmdb[input.ref.name].k`)},
	{"external sources iterated", "external", "p.rego:9:", holds(`{ some s; data.fleet.external[s].k }`), holds(`{ some k; data.fleet.external.cmdb[k] }`)},
	{"an external source that cannot be", "external", "p.rego:9:36", holds(`data.fleet.external["CMDB"].k`), holds(`data.fleet.external["cmdb-1"].k`)},
	{"a view that reads external documents", "view-reads", "p.rego:9:", header + "view.v[k] contains 1 if { k := input.ref.name; data.fleet.external.cmdb.k }\n" + body, header + "view.v[k] contains input.object.spec.until if k := input.ref.name\n" + body},
	{"a view that reads the time", "view-reads", "p.rego:9:", header + "view.v[k] contains 1 if { k := input.ref.name; data.fleet.passed[input.object.spec.until] }\n" + body, header + "view.v[k] contains input.object.spec.until if k := input.ref.name\n" + body},
	{"the environment", "compile", "p.rego:9:36", holds("opa.runtime()"), holds("true")},
	{"an import that is not used", "compile", "p.rego:9:1", header + "import data.fleet\n" + body, header + "import data.fleet\nviolation contains {\"msg\": \"x\"} if input.ref.name in fleet.names\n"},
	{"a type that cannot be", "compile", "p.rego:9:36", holds(`lower(1) == "a"`), holds(`lower("A") == "a"`)},
	{"recursion", "compile", "p.rego:9:1", header + "f(x) := f(x)\n" + holds("f(1)")[len(header):], header + "f(x) := x\n" + holds("f(1)")[len(header):]},
	{"variables that double", "expansion", "p.rego:9:1", holds("{ " + doubling(40) + " }"), holds("{ " + doubling(4) + " }")},
	{"a view that is a value", "view", "p.rego:9:1", header + "view.v[k] := 1 if k := input.ref.name\n" + body, header + "view.v[k] contains 1 if k := input.ref.name\n" + body},
	{"a view of two keys", "view", "p.rego:9:1", header + "view.v.w[input.ref.name] contains 1\n" + body, header + "view.v[input.ref.name] contains 1\n" + body},
	{"a view that is no constant", "view", "p.rego:9:1", header + "view[input.ref.name] contains 1\n" + body, header + "view.v[input.ref.kind] contains 1\n" + body},
	{"a view that is read and is none", "view", "p.rego:9:36", holds("data.fleet.views.p.v[input.ref.name]"), holds("data.fleet.views.p.v[input.ref.name]") + "view.v[input.ref.name] contains 1\n"},
	{"a view whose package is no constant", "view", "p.rego:9:36", holds("data.fleet.views[input.ref.name].v.x"), holds(`data.fleet.views["p"].v.x`) + "view.v[input.ref.name] contains 1\n"},
	{"violation that is a value", "violation", "p.rego:9:1", header + "violation := {{\"msg\": \"x\"}} if input.object.spec\n", header + body},
	{"violation that is a function", "violation", "p.rego:9:1", header + "violation(x) := x\n" + "view.v[input.ref.name] contains 1\n", header + "violated(x) := x\n" + "view.v[input.ref.name] contains 1\n"},
	{"nothing to judge", "violation", "p.rego:7:1", header + "x := 1\n", header + "view.v[input.ref.name] contains 1\n"},
	{"a subject that is none", "subject", "p.rego:7:1", custom("subject: cluster"), custom("subject: object")},
	{"a subject that is no string", "subject", "p.rego:7:1", custom("subject: [view.x]"), edited("package p", "#   subject: member\npackage p") + "violation contains {\"msg\": \"x\"} if input.member.labels.x\n"},
	{"a subject view that is none", "subject", "p.rego:1:1", edited("package p", "#   subject: view.w\npackage p") + "view.v[input.ref.name] contains 1\nviolation contains {\"msg\": \"x\"} if input.key\n", edited("package p", "#   subject: view.v\npackage p") + "view.v[input.ref.name] contains 1\nviolation contains {\"msg\": \"x\"} if input.key\n"},
	{"no kinds", "kinds", "p.rego:1:1", edited("#   kinds: [\"Pod\"]\n", "") + body, edited("#   kinds: [\"Pod\"]\n", "#   subject: member\n") + "violation contains {\"msg\": \"x\"} if input.member\n"},
	{"kinds that are no list", "kinds", "p.rego:6:1", edited(`["Pod"]`, "Pod") + body, edited(`["Pod"]`, "[Pod]") + body},
	{"kinds that are empty", "kinds", "p.rego:6:1", edited(`["Pod"]`, "[]") + body, header + body},
	{"too many kinds", "kinds", "p.rego:6:1", edited(`["Pod"]`, "["+manyKinds(201)+"]") + body, edited(`["Pod"]`, "["+manyKinds(200)+"]") + body},
	{"a kind that is no string", "kinds", "p.rego:6:1", edited(`"Pod"`, "1") + body, header + body},
	{"a kind twice", "kinds", "p.rego:6:1", edited(`"Pod"`, `"Deployment.v1.apps", "Deployment.apps"`) + body, edited(`"Pod"`, `"Deployment.v1.apps", "Deployment.extensions"`) + body},
	{"a kind that is none", "kinds", "p.rego:6:1", edited("Pod", "Pod.Bad_Group") + body, edited("Pod", "Pod.good-group") + body},
	{"a group that is none", "kinds", "p.rego:6:1", edited(`"Pod"`, `"*.Bad_Group"`) + body, edited(`"Pod"`, `"*.good-group.io"`) + body},
	{"a group without a name", "kinds", "p.rego:6:1", edited(`"Pod"`, `"*."`) + body, edited(`"Pod"`, `"*.apps"`) + body},
	{"a group twice", "kinds", "p.rego:6:1", edited(`"Pod"`, `"*.apps", "*.apps"`) + body, edited(`"Pod"`, `"*.apps", "*.batch"`) + body},
	{"a group and a kind of it", "kinds", "p.rego:6:1", edited(`"Pod"`, `"Deployment.v1.apps", "*.apps"`) + body, edited(`"Pod"`, `"Deployment.v1.apps", "*.batch", "Pod"`) + body},
	{"every kind and a group", "kinds", "p.rego:6:1", edited(`"Pod"`, `"*.apps", "*"`) + body, edited(`"Pod"`, `"*.apps"`) + body},
	{"every kind and another", "kinds", "p.rego:6:1", edited(`"Pod"`, `"Pod", "*"`) + body, edited(`"Pod"`, `"*"`) + body},
	{"a kind that is read and is none", "kind", "p.rego:9:36", holds(`data.fleet.by_name["a b"].x.y`), holds(`data.fleet.by_name.Pod.x.y`)},
	{"a kind that is read and no constant", "kind", "p.rego:9:36", holds(`data.fleet.by_name[input.ref.kind].x.y`), holds(`data.fleet.by_name["Deployment.apps"].x.y`)},
	{"a kind as a value", "data", "p.rego:9:42", holds(`count(data.fleet.by_name.Pod) > 1`), holds(`count(data.fleet.by_name.Pod.x) > 1`)},
	{"the fleet as a value", "data", "p.rego:9:36", holds(`data.fleet`), holds("data.fleet.names")},
	{"views as a value", "data", "p.rego:9:36", holds(`data.fleet.views.p`), holds("data.fleet.views.p.v") + "view.v[input.ref.name] contains 1\n"},
	{"an unknown document", "data", "p.rego:9:36", holds(`data.fleet.stuff`), holds("data.fleet.scopes.x.Pod")},
	{"data beside the fleet", "data", "p.rego:9:36", holds(`data.config.x`), holds("data.p.x") + "x := 1\n"},
	{"with", "with", "p.rego:9:36", holds("ok with input as {}") + "ok if input.object\n", holds("ok") + "ok if input.object\n"},
	{"input that is none", "input", "p.rego:9:", holds("input.spec"), holds("input.object.spec")},
	{"input of another subject", "input", "p.rego:10:", edited("package p", "#   subject: member\npackage p") + "violation contains {\"msg\": \"x\"} if input.object.spec\n", edited("package p", "#   subject: member\npackage p") + "violation contains {\"msg\": \"x\"} if input.member.name\n"},
	{"a view that reads its member", "view-reads", "p.rego:9:", header + "view.v[input.member.name] contains 1\n" + body, header + "view.v[input.ref.member] contains 1\n" + body},
	{"a view that reads the fleet", "view-reads", "p.rego:9:", header + "view.v[k] contains 1 if some k in data.fleet.names\n" + body, header + "view.v[k] contains 1 if some k in input.object.names\n" + body},
	{"a view that reads it all", "view-reads", "p.rego:9:", header + "view.v[k] contains input if k := input.ref.name\n" + body, header + "view.v[k] contains input.object if k := input.ref.name\n" + body},
	{"a rule that is none", "undefined", "p.rego:9:36", holds("data.p.y"), holds("data.p.y") + "y := 1\n"},
	{"no severity", "severity", "p.rego:4:1", edited("#   severity: high\n", "") + body, header + body},
	{"a severity that is none", "severity", "p.rego:5:1", edited("high", "High") + body, edited("high", "critical") + body},
	{"a severity that is no string", "severity", "p.rego:5:1", edited("high", "[high]") + body, edited("high", "low") + body},
	{"remedies that are no list", "remedies", "p.rego:7:1", custom("remedies: {action: patch, kind: Pod}"), custom("remedies: [{action: patch, kind: Pod}]")},
	{"a remedy that is a word", "remedies", "p.rego:7:1", custom("remedies: [patch]"), custom("remedies: []")},
	{"a remedy with more", "remedies", "p.rego:7:1", custom("remedies: [{action: patch, kind: Pod, mode: Enforce}]"), custom("remedies: [{action: delete, kind: Pod}]")},
	{"a remedy of an unknown action", "remedies", "p.rego:7:1", custom("remedies: [{action: replace, kind: Pod}]"), custom("remedies: [{action: apply, kind: Pod}]")},
	{"a remedy of no kind", "remedies", "p.rego:7:1", custom("remedies: [{action: patch}]"), custom("remedies: [{action: patch, kind: Pod}]")},
	{"a remedy of a bad kind", "remedies", "p.rego:7:1", custom("remedies: [{action: patch, kind: pods/exec}]"), custom("remedies: [{action: patch, kind: Pod}]")},
	{"a remedy of a version", "remedies", "p.rego:7:1", custom("remedies: [{action: patch, kind: Deployment.v1.apps}]"), custom("remedies: [{action: patch, kind: Deployment.apps}]")},
	{"a remedy twice", "remedies", "p.rego:7:1", custom("remedies: [{action: patch, kind: Pod}, {kind: Pod, action: patch}]"), custom("remedies: [{action: patch, kind: Pod}, {kind: Pod, action: delete}]")},
	{"parameters that are a list", "parameters", "p.rego:7:1", custom("parameters: []"), custom("parameters: {}")},
	{"parameters that are a string", "parameters", "p.rego:7:1", custom("parameters: {type: string}"), custom("parameters: {type: object}")},
	{"a schema that is none", "parameters", "p.rego:7:1", custom("parameters: {properties: {a: {type: whole}}}"), custom("parameters: {properties: {a: {type: integer}}}")},
	{"a schema that refers", "parameters", "p.rego:7:1", custom("parameters: {properties: {a: {$ref: '#/x'}}}"), custom("parameters: {properties: {ref: {type: string}}}")},
	{"a default within, of another type", "parameters", "p.rego:7:1", custom("parameters: {properties: {a: {properties: {b: {type: integer, default: x}}}}}"), custom("parameters: {properties: {a: {properties: {b: {type: integer, default: 1}}}}}")},
	{"a default that is closed", "parameters", "p.rego:7:1", custom("parameters: {properties: {a: {properties: {b: {}}, default: {c: 1}}}}"), custom("parameters: {properties: {a: {properties: {b: {}}, default: {b: 1}}}}")},
	{"a schema that is deep", "parameters", "p.rego:7:1", custom("parameters: {properties: {a: " + strings.Repeat("{items: ", 40) + "{}" + strings.Repeat("}", 40) + "}}"), custom("parameters: {properties: {a: " + strings.Repeat("{items: ", 20) + "{}" + strings.Repeat("}", 20) + "}}")},
}

// doubling binds n variables, each to twice the one before.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString("v0 := [input.object.spec]; ")
	for i := range n {
		fmt.Fprintf(&b, "v%d := [v%d, v%d]; ", i+1, i, i)
	}
	fmt.Fprintf(&b, "count(v%d) > 1", n)
	return b.String()
}

func manyKinds(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("K%d", i))
	}
	return strings.Join(list, ", ")
}

func TestLoad_RefusesRulesButNotTheirCounterparts(t *testing.T) {
	for _, test := range pairs {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, "p.rego", test.bad)
			var list module.Errors
			if !errors.As(err, &list) {
				t.Fatalf("%v is no module.Errors", err)
			}
			ok := slices.ContainsFunc(list, func(f module.Finding) bool {
				return f.Code == test.code && f.Severity == module.SeverityError && strings.HasPrefix(f.String(), test.at) && len(f.Message) > 10
			})
			if !ok {
				t.Errorf("got  %.2000v\nwant %s at %s", err, test.code, test.at)
			}
			if _, err := load(t, "p.rego", test.good); err != nil {
				t.Errorf("the twin is refused: %v", err)
			}
		})
	}
}

// trees are what is refused of several files, and a twin of each that is not.
var trees = []struct {
	name, code, want string
	bad, good        []module.Source
}{
	{"two sources of one name", "source", `two sources are named "a"`, []module.Source{{Name: "a"}, {Name: "a"}}, []module.Source{{Name: "a"}, {Name: "b"}}},
	{"no path", "path", `"" is not a clean relative path`, tree("", header+body), tree("p.rego", header+body)},
	{"an absolute path", "path", "/p.rego: error: \"/p.rego\"", tree("/p.rego", header+body), tree("a/p.rego", header+body)},
	{"a path that leaves", "path", "../p.rego: error", tree("../p.rego", header+body), tree("..p/p.rego", header+body)},
	{"a path that is not clean", "path", "a//p.rego: error", tree("a//p.rego", header+body), tree("a/b/p.rego", header+body)},
	{"a file twice", "path", "p.rego: error: the file exists twice", tree("p.rego", header+body, "p.rego", header+body), tree("p.rego", header+body, "p.md", "")},
	{"a file of data", "data-file", "a/data.json: error: policies have no data files", tree("a/data.json", "{}"), tree("a/other.json", "{}")},
	{"a file of YAML", "data-file", "data.yml: error: policies have no data files", tree("data.yml", "{}"), tree("data.txt", "{}")},
	{"a bundle", "data-file", ".manifest: error: bundles are not supported", tree(".manifest", "{}"), tree("manifest", "{}")},
	{"METADATA twice", "metadata", "q.rego:1:1: error: the package has METADATA already, in p.rego", tree("p.rego", header+body, "q.rego", header+body), tree("p.rego", header+body, "q.rego", "package p\n\nx := 1\n")},
	{"a package of two sources", "package", `b/q.rego:1:1: error: package p is already that of source "a"`, []module.Source{
		{Name: "a", Files: tree("p.rego", header+body)[0].Files}, {Name: "b", Files: tree("q.rego", "package p\n\nx := 1\n")[0].Files},
	}, []module.Source{
		{Name: "a", Files: tree("p.rego", header+body)[0].Files}, {Name: "b", Files: tree("q.rego", edited("package p", "package q")+body)[0].Files},
	}},
	{"another policy's rules", "data", "p.rego:9:36: error: data.q.x: package q is another policy", tree("p.rego", holds("data.q.x"), "q.rego", edited("package p", "package q")+body+"x := 1\n"), tree("p.rego", holds("data.federator.lib.q.x"), "q.rego", "package federator.lib.q\n\nx := 1\n")},
	{"a library of another source", "data", "a/p.rego:9:36: error: data.federator.lib.q.x: package federator.lib.q is another policy", []module.Source{
		{Name: "a", Files: tree("p.rego", holds("data.federator.lib.q.x"))[0].Files}, {Name: "b", Files: tree("q.rego", "package federator.lib.q\n\nx := 1\n")[0].Files},
	}, tree("p.rego", holds("data.federator.lib.q.x"), "q.rego", "package federator.lib.q\n\nx := 1\n")},
	{"a test that does not compile", "compile", "p_test.rego:5:", tree("p.rego", header+body, "p_test.rego", "package p_test\n\nimport data.p\n\ntest_x if p.violation(nothing)\n"), tree("p.rego", header+body, "p_test.rego", "package p_test\n\nimport data.p\n\ntest_x if count(p.violation) == 0 with input as {}\n")},
	{"a test that doubles", "expansion", "p_test.rego:3:", tree("p.rego", header+body, "p_test.rego", "package p_test\n\ntest_x if { "+doubling(40)+" }\n"), tree("p.rego", header+body, "p_test.rego", "package p_test\n\ntest_x if { "+doubling(3)+" }\n")},
}

func tree(files ...string) []module.Source {
	var s module.Source
	for i := 0; i < len(files); i += 2 {
		s.Files = append(s.Files, module.File{Path: files[i], Data: []byte(files[i+1])})
	}
	return []module.Source{s}
}

func TestLoad_RefusesTreesButNotTheirCounterparts(t *testing.T) {
	for _, test := range trees {
		t.Run(test.name, func(t *testing.T) {
			_, err := module.Load(test.bad, module.Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "["+test.code+"]") {
				t.Errorf("got  %v\nwant %s [%s]", err, test.want, test.code)
			}
			if _, err := module.Load(test.good, module.Options{}); err != nil {
				t.Errorf("the twin is refused: %v", err)
			}
		})
	}
}

// TestLoad_EnforcesItsOptions sets each bound to what a tree has, and to one less.
func TestLoad_EnforcesItsOptions(t *testing.T) {
	text := header + body
	sources := tree("p.rego", text, "q.rego", "package p\n\nx := 1\n", "README.md", strings.Repeat("x", 1000))
	total := len(text) + len("package p\n\nx := 1\n")
	fits := module.Options{MaxFile: len(text), MaxFiles: 2, MaxTotal: total}
	if _, err := module.Load(sources, fits); err != nil {
		t.Error(err)
	}
	for want, opts := range map[string]module.Options{
		fmt.Sprintf("p.rego: error: the file has %d bytes; at most %d are allowed [too-large]", len(text), len(text)-1): {MaxFile: len(text) - 1},
		"q.rego: error: there are more than 1 Rego files [too-many]":                                                    {MaxFiles: 1},
		fmt.Sprintf("q.rego: error: the Rego files have more than %d bytes in total [too-large]", total-1):              {MaxTotal: total - 1},
		"options: MaxFile is negative":  {MaxFile: -1},
		"options: MaxFiles is negative": {MaxFiles: -1},
		"options: MaxTotal is negative": {MaxTotal: -1},
	} {
		if _, err := module.Load(sources, opts); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestLoad_RefusesLongAnalyses has rules that all reach a long chain of
// functions.
func TestLoad_RefusesLongAnalyses(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(header)
	const length = 1000
	for i := range length {
		fmt.Fprintf(&b, "f%d(x) if { x.a%d; f%d(x) }\n", i, i, i+1)
	}
	fmt.Fprintf(&b, "f%d(x) if x.b\n", length)
	chain := b.String()
	_, err := load(t, "p.rego", chain+strings.Repeat("violation contains {\"msg\": \"x\"} if f0(input.object)\n", 3000))
	if err == nil || !strings.HasPrefix(err.Error(), "p.rego:7:1: error: the analysis of what package p reads takes too long [too-complex]") {
		t.Errorf("got %v", err)
	}
	if _, err := load(t, "p.rego", chain+strings.Repeat("violation contains {\"msg\": \"x\"} if f0(input.object)\n", 10)); err != nil {
		t.Error(err)
	}
}

// TestFindings_EveryCodeHasAnExample looks the codes of findings up in what makes them.
func TestFindings_EveryCodeHasAnExample(t *testing.T) {
	have := map[string]bool{
		"too-large": true, "too-complex": true, "no-tests": true, // have tests of their own
		"builtin": true, "sync-data": true, "engine": true, "template": true, "constraint": true, "wide-inventory": true, // of templates, which package policy tests
		"no-binding": true, "no-validations": true, "unknown-resource": true, // of ValidatingAdmissionPolicies, likewise
		"internal": true, // a failure of OPA's
		"syntax":   true, // what the parser refuses already
	}
	for _, p := range pairs {
		have[p.code] = true
	}
	for _, p := range trees {
		have[p.code] = true
	}
	for _, p := range lints {
		have[p.code] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`(?:\.fileError|\.errorAt|\.addError|\.opaErrors|warn|newFinding)\((?:Severity[A-Za-z]+, )?"([a-z-]+)"`)
	made := map[string]bool{"input": true}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range code.FindAllSubmatch(text, -1) {
			made[string(m[1])] = true
		}
	}
	if len(made) < 30 {
		t.Fatalf("only %d codes are found", len(made))
	}
	for _, c := range slices.Sorted(maps.Keys(made)) {
		if !have[c] {
			t.Errorf("finding %s has no example", c)
		}
	}
}
