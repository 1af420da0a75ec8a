package compiled

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"

	"federator.dev/federator/pkg/policy/internal/value"
)

// samples are texts of values that natives are called with.
var samples = []string{
	`""`, `"a"`, `"ab"`, `"a.b.c"`, `"äöü"`, `"A"`, `"a b "`, `"%v of %s"`, `"%d%%"`, `"%q"`, `"%5d"`, `"%"`, `"%[1]v"`, `"^a+$"`, `"a{2}"`, `"("`, `"."`, `"-1"`,
	`0`, `1`, `-1`, `2`, `7`, `1.0`, `1.5`, `1e3`, `-0`, `9223372036854775807`, `9223372036854775808`, `4294967296`, `0.1`,
	`true`, `false`, `null`, `[]`, `{}`, `set()`, `["a"]`, `["a", "b"]`, `[1, 2, 1]`, `["a", 1]`, `[["a"], {"b": 2}]`, `{"a"}`, `{"a", "b"}`, `{1, 2.0}`, `{"a": 1}`,
	`{"a": {"b": "c"}, "b": null}`, `{1: "x"}`, `["a", "b", "c", "a.b"]`, `{"x": "a", "y": [1]}`, `["%v"]`, `[1.5, "a"]`, `[null, true]`, `[{"a", "b"}, {"b"}]`,
}

func randomSample(r *rand.Rand, parsed []*ast.Term) *ast.Term {
	t := parsed[r.IntN(len(parsed))]
	if r.IntN(6) == 0 {
		return ast.ArrayTerm(t, randomSample(r, parsed))
	}
	return t
}

// TestNatives_DoWhatOPADoes: where a native gives a value, OPA's implementation does, and the same.
func TestNatives_DoWhatOPADoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m Machine
	done := map[string]int{}
	var parsed []*ast.Term
	for _, s := range samples {
		parsed = append(parsed, ast.MustParseTerm(s))
	}
	for _, name := range slices.Sorted(maps.Keys(natives)) {
		arity := ast.BuiltinMap[name].Decl.Arity()
		for range 6000 {
			args := make([]*ast.Term, arity)
			for i := range args {
				args[i] = randomSample(r, parsed)
			}
			if checkNative(t, &m, name, args) {
				done[name]++
			}
		}
		if done[name] < 10 {
			t.Errorf("%s was called %d times only", name, done[name])
		}
	}
}

func checkNative(t *testing.T, m *Machine, name string, terms []*ast.Term) bool {
	args := make([]value.Value, len(terms))
	for i := range args {
		args[i] = value.Of(nil, terms[i].Value)
	}
	got, ok := natives[name](m, args)
	if !ok {
		return false
	}
	var want ast.Value
	err := topdown.GetBuiltin(name)(topdown.BuiltinContext{Cache: builtins.Cache{}}, terms, func(t *ast.Term) error {
		want = t.Value
		return nil
	})
	if err != nil || want == nil || want.Compare(got.AST()) != 0 || fmt.Sprint(want) != fmt.Sprint(got.AST()) {
		t.Fatalf("%s(%v) is %v here and %v (%v) with OPA", name, terms, got.AST(), want, err)
	}
	return true
}

func TestNatives_LeaveWhatIsLarge(t *testing.T) {
	var m Machine
	large := value.Text(strings.Repeat("a", maxNativeText+1))
	many := value.ArrayOf(make([]value.Value, maxNativeElements+1))
	for i := range many.Elems() {
		many.Elems()[i] = value.Int(i)
	}
	for name, args := range map[string][]value.Value{
		"concat": {large, many}, "sprintf": {value.Text("%v"), value.ArrayOf([]value.Value{many})}, "contains": {large, large}, "equal": {many, many},
		"internal.member_2": {value.Int(1), many}, "split": {large, value.Text("a")},
	} {
		if _, done := natives[name](&m, args); done {
			t.Errorf("%s does not leave large arguments to OPA", name)
		}
	}
}
