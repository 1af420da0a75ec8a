package compiled_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// corners are rules of which topdown's result depends on how it evaluates: in what order and
// when a collection of terms becomes a value, and which of two equal numbers is kept. Each
// is asked for r; the input and the data are those of TestCorners_AgreeWithTopdown.
var corners = []struct {
	name  string
	rules []string
}{
	{"elements of a set of terms, in the order of the terms", []string{
		`r := [x | some x in {input.c, 3, -3}]`,
		`r := [x | {input.c, 3, -3}[x]]`,
		`r := [x | s := {input.c, 3, -3}; some x in s]`,
		"r := [x | some x in s]\ns := {input.c, 3, -3}",
		"r := [x | some x in f(1)]\nf(_) := {input.c, 3, -3}",
		"r := [x | some x in f(input.c)]\nf(y) := {y, -1, 7}",
		`r := [x | some x in {[input.c], [3], [-3]}]`,
		"r := [x | some x in s; s[x]]\ns := {input.c, input.b, -1}",
		`r := [k | some k, _ in {input.c: 1, 7: 2, -1: 3}]`,
		`r := [[k, v] | some k, v in {input.s: 1, "a": 2}]`,
		`r := concat(",", [x | some x in {input.s, "b", "z"}])`,
	}},
	{"elements of a set of terms that are equal", []string{
		`r := count([x | s := {input.a, input.b}; some x in s])`,
		`r := [1 | {input.a, input.b}[_]]`,
		`r := [x | some x in {input.s, "s"}]`,
		`r := sum([x | some x in {input.a, input.b}])`,
		`r := [k | some k, _ in {input.a: 1, input.b: 1}]`,
		`r := [k | some k, _ in {input.a: 1, input.b: 2}]`,
	}},
	{"a set of terms as a value", []string{
		`r := {input.a, input.b}`,
		`r := count({input.a, input.b})`,
		"r := count(s)\ns := {input.a, input.b}",
		`r := {input.a, input.b} == {1}`,
		"r := f({input.c, -2})\nf(s) := [x | some x in s]",
		`r := [x | walk({input.c, -2}, [_, x])]`,
		`r := [x | s := {input.c, -3} | set(); some x in s]`,
		`r := [x | s := {"a": {input.c, -3}}; some x in s.a]`,
		`r := [x | some v in {"b": input.a, "a": {input.c, -2}}; some x in v]`,
		`r := [x | v := [{input.c, -2}]; some x in v[0]]`,
		`r := [x | some [s] in [[{input.c, -2}]]; some x in s]`,
		`r := {{input.c, 3}, {3, 0}}`,
		`r := {input.a: 1, input.b: 1}`,
		`r := {"a": 1, "a": 2}`,
		`r := object.get({"a": 1, "a": 2}, "a", 3)`,
		`r := o.a if o := {"a": 1, "a": 2}`,
		`r := [[k, v] | some k, v in {"a": 1, "a": 2}]`,
		`r := {"a": input.a, "a": input.c}`,
		`r := {{"a": 1, "a": 2}, {"a": 2}}`,
		`r := {input.a: 1, input.b: 2}`,
		"r := [x | some y in o; some x in y]\no contains {input.s, \"a\"}",
	}},
	{"the first of equal numbers, as a rule's value", []string{
		"r := 1 if true\nr := input.b if true",
		"r := input.b if true\nr := input.a if true",
		"f(_) := input.b if true\nf(_) := input.a if true\nr := f(1)",
		"r[\"a\"] := input.b\nr[\"a\"] := input.a",
		"r[\"a\"] := input.a\nr[\"a\"] := input.b",
		"r.x[y].z := y if some y in [input.b, input.a]",
	}},
	{"the last of equal numbers, in a comprehension", []string{
		`r := {1: k | some k in [input.b, input.a]}`,
		`r := {1: k | some k in [input.a, input.b]}`,
		`r := {k: 1 | some k in [input.b, input.a]}`,
		`r := {x | some x in [input.b, input.a]}`,
		"r contains x if some x in [input.b, input.a]",
	}},
	{"elements of rules by equal numbers", []string{
		"r := [s[input.a], s[input.b]]\ns contains x if some x in [1, 2]",
		"r := [s[input.b], s[input.a]]\ns contains x if some x in [1, 2]",
		"r := [s[input.b], s[input.a], count(s)]\ns contains x if some x in [1, 2]",
		"r := [o[input.a], o[input.b]]\no[x] := x if some x in [1, 2]",
		"r := [f(input.a), f(input.b)]\nf(x) := sprintf(\"%v\", [x])",
		"r := f(1, input.b)\nf(x, x) := x",
	}},
	{"operations on sets of equal numbers", []string{
		`r := {1, 2} & {input.b}`,
		`r := {input.b} & {1, 2}`,
		`r := {1, 2} | {input.b}`,
		`r := {input.b} | {1, 2}`,
		`r := {1, 2} - {input.b}`,
		`r := {1.0, 1, 2}`,
	}},
	{"elements of collections by equal numbers", []string{
		`r := [x[input.b], x[input.a]] if x := {1: 7}`,
		`r := [x[input.b], x[input.a]] if x := [5, 6]`,
		`r := [x[input.b], x[input.a]] if x := {1}`,
		`r := object.get({1: "a"}, input.b, 0)`,
		`r := object.union({1: "a"}, {input.b: "b"})`,
		`r := x if { [x, x] = [input.b, input.a] }`,
	}},
	{"documents by numbers, read before and not", []string{
		`r := data.doc.l[1.0]`,
		`r := data.doc.l[input.b]`,
		`r := [data.doc.l, data.doc.l[input.b], data.doc.l[input.a]]`,
		`r := [data.doc.l[input.b], data.doc.l, data.doc.l[input.b]]`,
		`r := [data.doc.l, data.doc.l[input.one]]`,
		`r := [data.doc.m, data.doc.m[1]]`,
		`r := [data.doc.m, data.doc.m[input.nul]]`,
		`r := [data.doc, data.doc[input.t]]`,
		`r := data.doc[input.t]`,
	}},
	{"rules by numbers", []string{
		"r := o[input.a]\no[1.0] := 2",
		"r := o[input.b]\no[1] := 2",
		"r := o\no[1] := 2\no[1.0] := 2",
		"r := o[input.b]\no[1] := 2\no[x] := x if some x in [4]",
	}},
	{"rules below a step that is known when it is evaluated", []string{
		"r := o[input.s]\no.s := data.doc.l\no.t := data.doc.m",
		"r := o[input.nope]\no.t := data.doc.m",
		"r := o[input.s]\no.a contains 1 if data.doc.m\no.t.y := 4 if input.nope",
		"r := [[k, v] | some k, v in o]\no.s.z := 3\no.t.y := 4 if input.nope\no.a.x contains 4",
	}},
	{"every over what is no collection", []string{
		`r := 1 if every x in 5 { x > 1 }`,
		`r := 1 if every x in null { x > 1 }`,
		`r := 1 if every x in input.nope { x > 1 }`,
		`r := 1 if every x in input.s { x > 1 }`,
	}},
	{"else and default", []string{
		"default f(_) := 3\nr := f(input.nope)",
		"default f(_) := 3\nf(1) := 4\nr := [f(input.b), f(2)]",
		"r := 1 if input.nope\nelse := input.b if input.f\nelse := {input.s}",
		"r if { input.f }\nelse := 2",
		"r := [f(1), f(2)]\nf(1) := 2\nf(x) := 3 if x > 1\nf(x) := 3 if x == 2",
	}},
	{"numbers that are calculated with", []string{
		`r := [input.b + 0, input.b * 1, input.big + 1, input.big - 1, -0.0, 0 - 0.0, abs(-0)]`,
		`r := [x | x := input.c / [1, -1][_]]`,
		`r := [max([input.a, input.b]), max([input.b, input.a]), min([input.b, input.a]), sum([input.b])]`,
		`r := sort([input.b, input.a, 0])`,
		`r := $"{input.b} {input.big} {input.nope} {[x | some x in [1]]}"`,
	}},
	{"a patch that removes everything", []string{`r := json.patch({}, [{"op": "remove", "path": ""}])`}},
}

// TestCorners_AgreeWithTopdown: the results are those of topdown, as they are written.
func TestCorners_AgreeWithTopdown(t *testing.T) {
	input := ast.MustParseTerm(`{"a": 1, "b": 1.0, "c": 0, "s": "s", "t": true, "nul": null, "f": false, "l": [false, 1, null], "one": "1", "big": 9223372036854775807}`)
	data := ast.MustParseTerm(`{"doc": {"l": [1, 2, 3], "m": {"1": "x"}, "1": 5, "true": 6, "null": 7}}`)
	for _, corner := range corners {
		t.Run(corner.name, func(t *testing.T) {
			for _, rules := range corner.rules {
				for way := range 4 {
					e := asking(t, rules, "x = data.p.r")
					e.input, e.data, e.strict, e.indexing = input, data.Value, way&1 > 0, way&2 > 0
					if how := e.disagreement(t); how != "" {
						t.Errorf("%s\n(strict %v, indexing %v)\n%s", rules, e.strict, e.indexing, how)
						break
					}
				}
			}
		})
	}
}

// asking is an evaluation of rules of package p.
func asking(t *testing.T, rules, query string) *evaluation {
	t.Helper()
	c, err := ast.CompileModules(map[string]string{"p.rego": "package p\n\n" + rules})
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.QueryCompiler().Compile(ast.MustParseBody(query))
	if err != nil {
		t.Fatal(err)
	}
	return &evaluation{compiler: c, query: body, outs: variables(body)}
}

// disagreement says how the compiled program differs, "" if it does not or topdown decides.
func (e *evaluation) disagreement(t *testing.T) string {
	t.Helper()
	program, err := e.compile()
	if err != nil {
		return ""
	}
	return e.disagreementOf(&compiled.Machine{}, program)
}

func (e *evaluation) disagreementOf(m *compiled.Machine, program *compiled.Program) string {
	got := e.ofProgram(m, program)
	if got.err != nil {
		if strings.Contains(got.err.Error(), "panicked") {
			return got.err.Error()
		}
		return ""
	}
	want := e.ofTopdown()
	switch {
	case errors.Is(want.err, limits.ErrLimit) || !sameOutcome(got, want):
		return fmt.Sprintf("compiled %v\ntopdown %v", got, want)
	case e.indexing:
		return ""
	}
	a, b := pathsOf(e.compiler, got.reads), pathsOf(e.compiler, want.reads)
	if x, y := uncovered(a, b), uncovered(b, a); len(x)+len(y) > 0 {
		return fmt.Sprintf("read by the compiled program alone %v, by topdown alone %v", x, y)
	}
	return ""
}
