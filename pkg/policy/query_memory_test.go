package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// TestQuery_ChargesVariables: what builtins have made stays while variables hold it,
// however many there are; what a query is through with is charged no longer.
func TestQuery_ChargesVariables(t *testing.T) {
	var objects []testObject
	for i := range 50 {
		objects = append(objects, testObject{aggregate.Ref{Member: "eu/one", Kind: "Pod", Namespace: "a", Name: fmt.Sprint("web-", i)}, strings.Repeat("x", 1000)})
	}
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), objects), Reader: policy.Everything{}, Timeout: time.Minute, MaxRead: 1 << 20}
	times := func(n int, expr string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(expr, "$", fmt.Sprint(i)))
		}
		return strings.Join(all, "; ")
	}
	for query, answered := range map[string]bool{
		times(1, "a$ := numbers.range(1, 9999); a$[0] == 1"):         true,
		times(20, "a$ := numbers.range(1, 9999); a$[0] == 1"):        false,
		times(20, "a$ := numbers.range(1, 9999)[_]; a$ == 1"):        false,
		times(20, "count(numbers.range(1, 9999)) == 9999"):           false, // as a variable of the compiler's
		times(20, `count(split(sprintf("%0999d", [1]), "")) == 999`): true,
		times(99, `count(split(sprintf("%0999d", [1]), "")) == 999`): false,
		times(300, `not false with input as upper("$")`):             true,
		times(20, `s$ := sprintf("%-999s", ["x"])`) + "; " + times(200, `t$ := sprintf("%s%d", [concat("", [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12]), $])`): false,
		times(20, "o$ := object.union({k: k | k := numbers.range(1, 2000)[_]}, {1: $})"):                                                                                   false,
		"every i in numbers.range(1, 300) { count(numbers.range(i, i + 999)) == 1000 }":                                                                                    true, // one after the other
		"i := numbers.range(1, 300)[_]; x := numbers.range(i, i + 999)[999]; x > 1200":                                                                                     true,
		"i := numbers.range(1, 300)[_]; x := sprintf(\"%0999d\", [i]); endswith(x, \"299\")":                                                                               true,
		"o := data.fleet.objects.Pod[_][_][_]; p := data.fleet.objects.Pod[_][_][_]; x := object.union(o, p); x == 1":                                                      true,
		"all := [o | o := data.fleet.objects.Pod[_][_][_]]; i := numbers.range(1, 50)[_]; x := array.concat(all, [i]); count(x) == 0":                                      true,
		"walk(data.fleet.objects, [p, v]); count(p) > 100":                                                                                                                 true,
	} {
		a, err := policy.Query(t.Context(), opts, query)
		switch {
		case answered && err != nil:
			t.Errorf("%.200s: %v", query, err)
		case !answered && !errors.Is(err, policy.ErrQueryLimit):
			t.Errorf("%.200s: %d rows, %v", query, len(rows(a)), err)
		case !answered && !strings.Contains(err.Error(), "bytes of memory"):
			t.Errorf("%.200s: %v", query, err)
		}
	}
}

func rows(a *policy.Answer) []policy.Row {
	if a == nil {
		return nil
	}
	return a.Rows
}

// TestQuery_ChargesNestedComprehensions.
func TestQuery_ChargesNestedComprehensions(t *testing.T) {
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), nil), Reader: policy.Everything{}, Timeout: time.Minute, MaxRead: 1 << 20}
	const much = `[[i, j] | i := numbers.range(1, 300)[_]; j := numbers.range(1, 300)[_]]`
	for _, query := range []string{
		`x := ` + much,
		much + `[0] == [1, 1]`,
		`not ` + much + `[0] == 3`,
		`some x in ` + much + `; x == 1`,
		`every x in ` + much + ` { x[0] > 0 }`,
		`every x in [1] { count(` + much + `) > x }`,
		`input[0] == 1 with input as ` + much,
		`{"a": {` + much + `}} = x`,
		`x := $"{count(` + much + `)}"`,
		`x := $"{` + much + `[0]}"`,
		`count({1 | count(` + much + `) > 0}) == 1`,
		`x := {count(` + much + `): 1 | true}`,
		`x := {1: count(` + much + `) | true}`,
		`data.fleet.names[` + much + `[0][0]]`,
		`[[x, y], _] := [` + much + `[0], 1]`,
	} {
		if a, err := policy.Query(t.Context(), opts, query); !errors.Is(err, policy.ErrQueryLimit) {
			t.Errorf("%s: %v, %v", query, rows(a), err)
		}
	}
}

// TestQuery_ChargesEachResultOfIndexedComprehensions, which it keeps.
func TestQuery_ChargesEachResultOfIndexedComprehensions(t *testing.T) {
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), nil), Reader: policy.Everything{}, Timeout: time.Minute, MaxRead: 1 << 20}
	const all = "numbers.range(1, 200)"
	for _, query := range []string{
		"i := " + all + "[_]; s := {j | " + all + "[_] = i; j := " + all + "[_]}; count(s) > 200",
		"i := " + all + "[_]; s := {j: 1 | " + all + "[_] = i; j := " + all + "[_]}; count(s) > 200",
	} {
		if a, err := policy.Query(t.Context(), opts, query); !errors.Is(err, policy.ErrQueryLimit) {
			t.Errorf("%s: %v, %v", query, rows(a), err)
		}
	}
}
