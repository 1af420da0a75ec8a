//go:build linux || darwin || freebsd

package compiled_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/value"
)

// hostile are bodies that never end by themselves, or as good as never.
var hostile = map[string]string{
	"loops":          `some a in input.xs; some b in input.xs; some c in input.xs; some d in input.xs; a + b + c + d == -1`,
	"comprehensions": `count([[x, y, z] | some x in input.xs; some y in input.xs; some z in input.xs; some _ in input.xs]) == 1`,
	"every":          `every a in input.xs { every b in input.xs { every c in input.xs { every d in input.xs { a + b + c + d > -1 } } } }; false`,
	"not":            `not some_pair; not other`,
	"walk":           `walk(input, [_, a]); walk(input, [_, b]); walk(input, [_, c]); a == {b: c}`,
	"functions":      `some a in input.xs; some b in input.xs; some c in input.xs; f(f(f(a + b) + c) + b) == -1`,
	"text":           `some a in input.xs; some b in input.xs; some c in input.xs; contains(sprintf("%v %v %v", [a, b, input.xs]), "x")`,
	"patterns":       `some a in input.xs; some b in input.xs; regex.match("(a*)*b", concat("", [input.long, sprintf("%d", [a + b])]))`,
	"sets":           `some a in input.xs; some b in input.xs; some c in input.xs; ({a, b, c} | {x | some x in input.xs}) == set()`,
	"sorts":          `some a in input.xs; some b in input.xs; sort(array.concat(input.xs, [a, b])) == []`,
	"json":           `some a in input.xs; some b in input.xs; json.unmarshal(json.marshal([a, b, input.xs])) == []`,
}

const hostileRules = `
some_pair if { some a in input.xs; some b in input.xs; some c in input.xs; some d in input.xs; a * b * c * d == -1 }

other if { some a in input.xs; a == -1 }

f(x) := y if { y := x % 1000; y >= 0 }
`

// TestRun_EndsWithItsBudget: no body goes on for long after its budget is used up. How long is logged.
func TestRun_EndsWithItsBudget(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	xs := make([]value.Value, 300)
	for i := range xs {
		xs[i] = value.Int(i)
	}
	long := make([]byte, 2000)
	for i := range long {
		long[i] = 'a'
	}
	input := value.ObjectOf([]value.Value{value.Text("long"), value.Text(string(long)), value.Text("xs"), value.ArrayOf(xs)})
	const limit = 20 * time.Millisecond
	for name, body := range hostile {
		c, err := ast.CompileModules(map[string]string{"p.rego": "package p\n\nq if { " + body + " }\n" + hostileRules})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		query, err := c.QueryCompiler().Compile(ast.MustParseBody("data.p.q = x"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := compiled.Compile(c, query, []ast.Var{"x"}, compiled.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var m compiled.Machine
		meter := budget.NewMeter(nil)
		b := meter.Start(limit, t.Context().Done())
		start := cputime.Thread()
		err = m.Run(p, compiled.Input{Input: input, Cancel: &b}, func([]value.Value) error { return nil })
		took := cputime.Thread() - start
		if !errors.Is(err, compiled.ErrCancelled) {
			t.Errorf("%s: it ends with %v", name, err)
		}
		t.Logf("%-15s ends %v after its budget", name, (took - limit).Round(10*time.Microsecond))
		m.Release()
	}
}
