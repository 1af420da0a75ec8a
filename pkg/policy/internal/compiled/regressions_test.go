package compiled_test

import (
	"errors"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/compiled"
)

// regressions are the smallest cases of what compiled programs once did otherwise than topdown.
var regressions = []struct {
	name, module, query, input, data string
	lenient                          bool
}{
	{
		name:   "a set of a variable that holds an object, searched for it",
		module: `f2(v) := false if { some [v10, k] in input.b.b } else := false if { v in {"é%d", v} }`,
		query:  `q = data.p.f2(data.d.a)`,
		input:  `{"a": 3}`,
		data:   `{"d": {"a": {"a": null, "b": "é%d", "x": [["b"], 1.0], "items": {"c": "10.0.0.0/8", "items": {"b": "x", "c": false, "x": false}}}}}`,
	},
	{
		name:   "conflict of keys in a rule that is evaluated as a whole",
		module: `o[k] := v if { some v in {1, 2}; k := 1 }`,
		query:  `data.p.o = x`,
	},
	{
		name:   "conflict of keys where only whether there is a value is asked",
		module: `o[k] := v if { some v in {1, 2}; k := 1 }`,
		query:  `data.p.o`,
	},
	{
		name:   "comprehension that cannot be equal, whose body reads",
		module: `s contains 1 if { {true | data.e.b} = input.x }`,
		query:  `data.p.s = x`,
		input:  `{"x": "c"}`,
		data:   `{"e": {"b": 1}}`,
	},
	{
		name:   "comprehension that cannot be equal to a document, whose body reads",
		module: `s contains 1 if { {true | data.e.b} = data.d }`,
		query:  `data.p.s = x`,
		data:   `{"d": [], "e": {"b": 1}}`,
	},
	{
		name:   "equal values of a key in a comprehension, written differently",
		module: `o := {k: v | some v in input.a; k := 1}`,
		query:  `data.p.o = x`,
		input:  `{"a": [1.0, 1]}`,
	},
	{
		name:   "equal values of a rule, written differently",
		module: "o := input.b\n\no := input.c",
		query:  `data.p.o = x`,
		input:  `{"b": 1.0, "c": 1}`,
	},
	{
		name:   "equal values of a function, written differently",
		module: "f(_) := input.b\n\nf(_) := input.c",
		query:  `data.p.f(1) = x`,
		input:  `{"b": 1.0, "c": 1}`,
	},
	{
		name:   "equal keys of an object, written differently, whose values are equal",
		module: `o := {input.b: 1, input.c: 1.0}`,
		query:  `data.p.o = x`,
		input:  `{"b": 1.0, "c": 1}`,
	},
	{
		name:   "index of a document that is read already, written with a point",
		module: `o := [y, x] if { y := data.a; x := data.a[1.0] }`,
		query:  `data.p.o = x`,
		data:   `{"a": [0, 5]}`,
	},
	{
		name:   "composite key of a document",
		module: `o := x if { x := data.a[[1]] } else := 2`,
		query:  `data.p.o = x`,
		data:   `{"a": [0, 5]}`,
	},
	{
		name:   "index of an array in a document as a string, below a variable",
		module: `s contains [i, x] if { x := data.a[i]["1"] }`,
		query:  `data.p.s = x`,
		data:   `{"a": {"b": [0, 5]}}`,
	},
	{
		name:   "key of an object in a document as a number, below a variable",
		module: `s contains [i, x] if { x := data.a[i][1] }`,
		query:  `data.p.s = x`,
		data:   `{"a": {"b": {"1": 5}}}`,
	},
	{
		name:   "pattern as a key of a partial set, whose rule enumerates by it",
		module: "s contains x if { input.c[x] }\n\nc := [k | s[[k, _]]]",
		query:  `data.p.c = x`,
		input:  `{"c": [1, 2]}`,
	},
	{
		name:   "order in which a set with variables is gone through",
		module: `o := [k | some k in {input.a, input.b}]`,
		query:  `data.p.o = x`,
		input:  `{"a": 2, "b": 1}`,
	},
	{
		name:   "order in which the value of a rule with variables is gone through",
		module: "s := {x, y} if { x := input.a; y := input.b }\n\no := [k | s[k]]",
		query:  `data.p.o = x`,
		input:  `{"a": 2, "b": 1}`,
	},
	{
		name:   "order in which an object with variables as keys is gone through",
		module: `o := [k | some k, _ in {input.a: 1, input.b: 2}]`,
		query:  `data.p.o = x`,
		input:  `{"a": 2, "b": 1}`,
	},
}

func TestRegressions(t *testing.T) {
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			compiler, err := ast.CompileModules(map[string]string{"p.rego": "package p\n\n" + r.module})
			if err != nil {
				t.Fatal(err)
			}
			query, err := compiler.QueryCompiler().Compile(ast.MustParseBody(r.query))
			if err != nil {
				t.Fatal(err)
			}
			e := &evaluation{compiler: compiler, query: query, outs: variables(query), data: ast.NewObject(), strict: !r.lenient, indexing: true}
			if r.input != "" {
				e.input = ast.MustParseTerm(r.input)
			}
			if r.data != "" {
				e.data = ast.MustParseTerm(r.data).Value
			}
			program, err := e.compile()
			if _, refused := errors.AsType[*compiled.Unsupported](err); refused {
				return
			}
			var m compiled.Machine
			got, want := e.ofProgram(&m, program), e.ofTopdown()
			if got.err == nil && !sameOutcome(got, want) {
				t.Errorf("compiled %v\ntopdown %v", got, want)
			}
			e.indexing = false
			a, b := pathsOf(compiler, got.reads), pathsOf(compiler, e.ofTopdown().reads)
			if x, y := uncovered(a, b), uncovered(b, a); got.err == nil && len(x)+len(y) > 0 {
				t.Errorf("read by the compiled program alone %v, by topdown alone %v", x, y)
			}
		})
	}
}
