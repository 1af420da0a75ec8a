package policy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// TestQuery_ComprehensionsEqualOPA, though what they keep is counted.
func TestQuery_ComprehensionsEqualOPA(t *testing.T) {
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), nil), Reader: policy.Everything{}, Timeout: time.Minute}
	for _, query := range []string{
		`x := [i | i := [3, 1, 3][_]]`,
		`x := {i | i := [3, 1, 3][_]}`,
		`x := {k: v | v := [3, 1, 3][k]}`,
		`x := {k: v | k := ["a", "b"][i]; v := [[1, 2], [3, 4]][i][1]}`,
		`x := [[1, 2, 3][_] | true]`,
		`x := {k: [1, 2][k] | k := [0, 1][_]}`,
		`x := [y | z := [[1, 2], [3]][_]; y := [w + 1 | w := z[_]; w != 2]]`,
		`x := [[w | w := z[_]] | z := [[1, 2], [3]][_]]`,
		`x := [upper(s) | s := ["a", "b"][_]]`,
		`x := [i | some i in [1, 2, 3]; i > 1]`,
		`x := [i | some i, _ in ["a", "b"]]`,
		`x := [false | true]`,
		`x := [u | u := {"a": 1}["b"]]`,
		`x := [1 | false]`,
		`every i in [j | j := [1, 2][_]] { i < 3 }`,
		`not count([1 | [1, 2][_] > 2]) > 0`,
		`some i in {1, 2}; x := [j | j := [i, i + 1][_]]`,
		`y := [1, 2][_]; x := {z: y | z := ["a", "b"][_]}`,
		`count({i | i := numbers.range(1, 10)[_] % 3}) == 3`,
		`x := {i: j | i := [1, 1][_]; j := [2, 3][_]}`, // conflicts
		`x := [sprintf("%d-%s", [i, c]) | c := ["a", "b"][i]]`,
		`a := [1, 2][_]; x := [b | b := [1, 2, 3][_]; b > a]`,
		`[x, y] := [[i | i := [1, 2][_]], {i | i := [1, 2][_]}]`,
		`x := sum([i | i := [1, 2][_]]) + max({i | i := [1, 2][_]})`,
		`x := [a | a := {[1, 2], [3, 4]}[_][0]]`,
		`x := [null, "a", {"b": {1}}][_]; y := [z | z := [x, x][_]]`,
	} {
		want, wrong := rego.New(rego.Query(query), rego.StrictBuiltinErrors(true)).Eval(t.Context())
		a, err := policy.Query(t.Context(), opts, query)
		if (wrong == nil) != (err == nil) {
			t.Errorf("%s: %v, OPA: %v", query, err, wrong)
		}
		if err != nil || wrong != nil {
			continue
		}
		var rows []policy.Row
		for _, r := range want {
			row := policy.Row{Bindings: r.Bindings}
			for _, e := range r.Expressions {
				row.Values = append(row.Values, e.Value)
			}
			rows = append(rows, row)
		}
		if got, want := fmt.Sprint(lines(t, a.Rows)), fmt.Sprint(lines(t, rows)); got != want {
			t.Errorf("%s:\n%s\nOPA:\n%s", query, got, want)
		}
	}
}

func lines(t *testing.T, rows []policy.Row) []string {
	t.Helper()
	var all []string
	for _, r := range rows {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.ReplaceAll(string(text), `,"bindings":{}`, ""))
	}
	return all
}

// TestQuery_ChargesComprehensions, and neither what they share nor what they
// have already.
func TestQuery_ChargesComprehensions(t *testing.T) {
	var objects []testObject
	for i := range 100 {
		objects = append(objects, testObject{aggregate.Ref{Member: "eu/one", Kind: "Pod", Namespace: "a", Name: fmt.Sprint("web-", i)}, strings.Repeat("x", 1000)})
	}
	opts := policy.QueryOptions{Snapshot: fleetOf(t, testMembers, allScopes(), objects), Reader: policy.Everything{}, Timeout: time.Minute, MaxRead: 1 << 20}
	const often = "numbers.range(1, 200)[_]"
	for query, answered := range map[string]bool{
		"x := count([o | " + often + "; o := data.fleet.objects.Pod[_][_][_]])":                       true, // 20,000 pointers to objects
		"x := count({[ns, 1] | " + often + "; data.fleet.objects.Pod[_][ns][_]})":                     true, // one
		"x := count({ns: m | " + often + "; data.fleet.objects.Pod[m][ns][_]})":                       true,
		"x := count([[ns, 1] | " + often + "; data.fleet.objects.Pod[_][ns][_]])":                     false, // 20,000
		"x := count({[n, i] | i := " + often + "; data.fleet.objects.Pod[_][_][n]})":                  false,
		"x := count({[n, i]: 1 | i := " + often + "; data.fleet.objects.Pod[_][_][n]})":               false,
		"x := count([o | i := " + often + "; o := upper(data.fleet.objects.Pod[_][_][_].spec.host)])": false,
	} {
		a, err := policy.Query(t.Context(), opts, query)
		switch {
		case answered && err != nil:
			t.Errorf("%s: %v", query, err)
		case !answered && !errors.Is(err, policy.ErrQueryLimit):
			t.Errorf("%s: %+v, %v", query, a, err)
		case !answered && strings.Contains(err.Error(), "federator_"):
			t.Errorf("%s: %v", query, err)
		}
	}
}

// BenchmarkQueryComprehension prints what counting costs beside plain OPA.
func BenchmarkQueryComprehension(b *testing.B) {
	opts := policy.QueryOptions{Snapshot: fleetOf(b, testMembers, allScopes(), nil), Reader: policy.Everything{}, Timeout: time.Minute}
	for name, query := range map[string]string{
		"array": `x := count([[i, j] | i := numbers.range(1, 200)[_]; j := numbers.range(1, 200)[_]])`,
		"set":   `x := count({s | i := numbers.range(1, 200)[_]; j := numbers.range(1, 200)[_]; s := sprintf("%d-%d", [i, j])})`,
		"few":   `x := count({i | i := numbers.range(1, 200)[_] % 7; j := numbers.range(1, 200)[_]})`,
	} {
		b.Run(name, func(b *testing.B) {
			var ours, opa time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := policy.Query(b.Context(), opts, query); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if _, err := rego.New(rego.Query(query)).Eval(b.Context()); err != nil {
					b.Fatal(err)
				}
				ours, opa = ours+middle.Sub(start), opa+time.Since(middle)
			}
			b.ReportMetric(float64(ours)/float64(opa), "x-of-OPA")
		})
	}
}
