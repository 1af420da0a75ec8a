package limits_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/limits"
)

func eval(t *testing.T, query string) (rego.ResultSet, error) {
	t.Helper()
	// Trees of 2^40 leaves, each rule holding the one before it twice.
	module := "package dag\n\nb0 := [1, 1]\n\nc0 := [1, 1]\n\n"
	for i := range 40 {
		module += fmt.Sprintf("b%d := [b%d, b%d]\n\nc%d := [c%d, c%d]\n\n", i+1, i, i, i+1, i, i)
	}
	options := append(limits.Options(), rego.Query(query), rego.Module("dag.rego", module))
	return rego.New(options...).Eval(t.Context())
}

func TestCapabilities_OmitBuiltinsThatReadMoreThanTheirArguments(t *testing.T) {
	there := map[string]bool{}
	for _, b := range limits.Capabilities().Builtins {
		there[b.Name] = true
		if b.Nondeterministic {
			t.Errorf("%s is not deterministic", b.Name)
		}
	}
	for _, name := range []string{
		"http.send", "net.lookup_ip_addr", "time.now_ns", "rand.intn", "uuid.rfc4122", "opa.runtime", "trace",
		"bits.lsh", "io.jwt.decode_verify", "json.match_schema", "json.verify_schema", "providers.aws.sign_req",
		"graph.reachable_paths", "regex.globs_match", "strings.render_template", "rego.parse_module",
		"crypto.x509.parse_and_verify_certificates",
	} {
		if there[name] {
			t.Errorf("%s is allowed", name)
		}
	}
	if len(there) < 120 {
		t.Errorf("%d builtins are allowed: names of the allowlist are not OPA's", len(there))
	}
	if _, err := eval(t, `time.now_ns()`); err == nil || !strings.Contains(err.Error(), "undefined function time.now_ns") {
		t.Errorf("a query that reads the clock: %v", err)
	}
	if allow := limits.Capabilities().AllowNet; allow == nil || len(allow) != 0 {
		t.Errorf("AllowNet = %v", allow)
	}
}

func TestGuards_AcceptUsualCalls(t *testing.T) {
	for query, want := range map[string]string{
		`count(numbers.range(1, 99999))`:                                  `99999`,
		`count(numbers.range_step(0, 1000000000, 1000000))`:               `1001`,
		`sprintf("%-20s|%5.2f|%v", ["web", 1.5, {"a": 1}])`:               `"web                 | 1.50|{\"a\": 1}"`,
		`sprintf("%[2]s %[1]s 100%%", ["a", "b"])`:                        `"b a 100%"`,
		`sprintf("%v of 20000 replicas listens on 8080*", ["web"])`:       `"web of 20000 replicas listens on 8080*"`,
		`concat(", ", ["a", "b"])`:                                        `"a, b"`,
		`count(split("registry.example.com/team/web:1.2", "/"))`:          `3`,
		`regex.match("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "payments")`: `true`,
		`regex.replace("a1b22", "[0-9]+", "<$0>")`:                        `"a<1>b<22>"`,
		`glob.match("*.example.com", ["."], "api.example.com")`:           `true`,
		`units.parse_bytes("64Gi") + units.parse("1500m")`:                `68719476737.5`,
		`to_number("1e3")`:                      `1000`,
		`product([2, 3, 0.5])`:                  `3`,
		`count(net.cidr_expand("10.0.0.0/20"))`: `4096`,
		`json.patch({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}]).b`: `1`,
		`time.format([1704067200000000000, "UTC", "RFC3339"])`:                 `"2024-01-01T00:00:00Z"`,
		`time.parse_ns("RFC1123", "Mon, 01 Jan 2024 00:00:00 UTC")`:            `1704067200000000000`,
		`count([x | walk({"a": [1, 2]}, [_, x])])`:                             `4`,
		`strings.replace_n({"a": "b", "c": "d"}, "ac")`:                        `"bd"`,
		`strings.any_prefix_match("ghcr.io/x", ["docker.io/", "ghcr.io/"])`:    `true`,
		`json.unmarshal(json.marshal({"a": [1]})).a[0]`:                        `1`,
		`{"a": 1} == {"a": 1}`:                                                 `true`,
		`18446744073709551616 * 18446744073709551616`:                          `340282366920938463463374607431768211456`,
		`semver.compare("1.36.3", "1.37.0")`:                                   `-1`,
		`object.union_n([{"a": 1}, {"b": 2}]) == {"a": 1, "b": 2}`:             `true`,
		`count(graph.reachable({"a": {"b"}, "b": set()}, {"a"}))`:              `2`,
	} {
		rs, err := eval(t, "x := "+query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		got, err := ast.InterfaceToValue(rs[0].Bindings["x"])
		if err != nil {
			t.Fatal(err)
		}
		if got.Compare(ast.MustParseTerm(want).Value) != 0 {
			t.Errorf("%s = %v, want %s", query, got, want)
		}
	}
}

func TestGuards_RefuseAmplifyingCallsByName(t *testing.T) {
	long := `s := concat("", ["` + strings.Repeat("a", 1<<19) + `"]); `
	for query, builtin := range map[string]string{
		`numbers.range(0, 100000)`:          "numbers.range",
		`numbers.range(1, 1e100)`:           "numbers.range",
		`numbers.range_step(0, 1e12, 1000)`: "numbers.range_step",
		`sprintf("%1000000d", [1])`:         "sprintf",
		`sprintf("%.1000000f", [1.5])`:      "sprintf",
		`sprintf("%*d", [1000000, 1])`:      "sprintf",
		`sprintf("` + strings.Repeat("%[1]s", 2000) + `", ["` + strings.Repeat("x", 1000) + `"])`: "sprintf",
		`1e1001 * 2`:                     "mul",
		`1e1500 + 1`:                     "plus",
		`product([1e400, 1e400, 1e400])`: "product",
		`bits.or(1e2000, 1)`:             "bits.or",
		`format_int(1e2000, 2)`:          "format_int",
		`to_number("1e99999")`:           "to_number",
		`units.parse("1e999999k")`:       "units.parse",
		`net.cidr_expand("10.0.0.0/8")`:  "net.cidr_expand",
		`net.cidr_expand("::/0")`:        "net.cidr_expand",
		`regex.match("a{1,1000}b{1,1000}c{1,1000}d{1,1000}e{1,1000}", "a")`:                                  "regex.match",
		`regex.match("(x+x+)+y", "` + strings.Repeat("x", 1<<19) + `")`:                                      "regex.match",
		`regex.replace("` + strings.Repeat("a", 5000) + `", "a", "` + strings.Repeat("b", 5000) + `")`:       "regex.replace",
		`glob.match("` + strings.Repeat("*a", 20) + `", [], "` + strings.Repeat("a", 500) + `")`:             "glob.match",
		`replace("` + strings.Repeat("a", 2000) + `", "a", "` + strings.Repeat("b", 2000) + `")`:             "replace",
		`strings.replace_n({"a": "` + strings.Repeat("b", 2000) + `"}, "` + strings.Repeat("a", 2000) + `")`: "strings.replace_n",
		long + `concat(s, ["x", "y", "z"])`:                                                                  "concat",
		long + `indexof_n(s, "a")`:                                                                           "indexof_n",
		long + `split(s, "")`:                                                                                "split",
		long + `json.unmarshal(s)`:                                                                           "json.unmarshal",
		long + `yaml.unmarshal(s)`:                                                                           "yaml.unmarshal",
		long + "x := $\"{s}{s}{s}\"":                                                                         "internal.template_string",
		`json.marshal(data.dag.b40)`:                                                                         "json.marshal",
		`yaml.marshal(data.dag.b40)`:                                                                         "yaml.marshal",
		`sprintf("%v", [data.dag.b40])`:                                                                      "sprintf",
		`walk(data.dag.b40, x)`:                                                                              "walk",
		`data.dag.b40 == data.dag.c40`:                                                                       "equal",
		`json.patch({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/a/-"} | numbers.range(1, 40)[_]])`:   "json.patch",
		`time.clock([0, "Europe/Berlin"])`:                                                                   "time.clock",
		`time.format([0, "Local"])`:                                                                          "time.format",
		`time.parse_ns("02 Jan 06 15:04 MST", "01 Jan 24 00:00 CEST")`:                                       "time.parse_ns",
		`array.concat(numbers.range(1, 60000), numbers.range(1, 60000))`:                                     "array.concat",
		`object.subset(numbers.range(1, 2000), numbers.range(1, 1000))`:                                      "object.subset",
		`strings.any_prefix_match({sprintf("%d", [x]) | some x in numbers.range(1, 1000)}, {sprintf("%d", [x]) | some x in numbers.range(1, 1000)})`: "strings.any_prefix_match",
		`union({x | some i in numbers.range(1, 20); x := {y | some j in numbers.range(1, 9000); y := (i * 9000) + j}})`:                              "union",
	} {
		_, err := eval(t, query)
		limit, ok := errors.AsType[*limits.Error](err)
		if !ok || !errors.Is(err, limits.ErrLimit) {
			t.Errorf("%.80s: %v is no limit", query, err)
			continue
		}
		if limit.Builtin != builtin {
			t.Errorf("%.80s: %v, want %s", query, limit, builtin)
		}
	}
}

func TestError_EndsNonStrictEvaluationsToo(t *testing.T) {
	_, err := rego.New(rego.Query(`not numbers.range(1, 1e9)`)).Eval(t.Context())
	if !errors.Is(err, limits.ErrLimit) {
		t.Fatalf("got %v", err)
	}
	if e, ok := errors.AsType[*topdown.Error](err); !ok || e.Location == nil || e.Location.Row != 1 {
		t.Errorf("%v does not say where", err)
	}
	if got, want := err.Error(), "numbers.range: limit of 100000 elements exceeded"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}

func TestCheck_FindsVariablesThatDouble(t *testing.T) {
	doubling := "package p\n\nviolation contains {\"msg\": \"x\"} if {\n\tv0 := [1, 1]\n"
	for i := range 30 {
		doubling += fmt.Sprintf("\tv%d := {\"a\": v%d, \"b\": v%d}\n", i+1, i, i)
	}
	doubling += "\tv30 != 1\n}\n"
	usual := "package q\n\nviolation contains {\"msg\": msg} if {\n\ta := [1, 1]\n\tb := [a, a]\n\tmsg := sprintf(\"%v\", [b, input.x])\n}\n"
	compiler, err := ast.CompileModules(map[string]string{"p.rego": doubling, "q.rego": usual})
	if err != nil {
		t.Fatal(err)
	}
	errs := limits.Check(compiler.Modules)
	if len(errs) != 1 || errs[0].Location.File != "p.rego" || errs[0].Location.Row != 3 {
		t.Fatalf("got %v", errs)
	}
}

// TestCheck_FindsFunctionsThatDouble, however variables and functions
// pass on what they hold, and whichever of them is looked at first.
func TestCheck_FindsFunctionsThatDouble(t *testing.T) {
	const fine = "package p\n\npair(x) := [x, x]\n\ntwice(x) := y if y := pair(pair(x))\n\nfirst([x, _]) := x\n\nfine if count(twice(input.x)) == 2\n\n"
	repeat := func(line string) string {
		out := "v0 := {\"k\": [1, 1]}\n"
		for i := range 30 {
			out += strings.NewReplacer("NEXT", fmt.Sprintf("v%d", i+1), "LAST", fmt.Sprintf("v%d", i), "OTHER", fmt.Sprintf("w%d", i)).Replace(line) + "\n"
		}
		return out + "v30 != 1\n"
	}
	for name, body := range map[string]string{
		"calls":                                "a := twice(twice(twice(twice(twice(input.x)))))\nb := twice(twice(twice(twice(twice(a)))))\nb != 1\n",
		"variables":                            repeat("NEXT := [LAST, LAST]"),
		"variables of the same":                repeat("OTHER := [LAST, LAST]\nNEXT := OTHER"),
		"a variable's name first":              repeat("[LAST, LAST] = NEXT"),
		"parts of arrays":                      repeat("[NEXT, _] := [[LAST, LAST], 1]"),
		"parts of objects":                     repeat("{\"a\": NEXT} := {\"a\": [LAST, LAST]}"),
		"references":                           repeat("NEXT := {\"k\": [LAST.k, LAST.k]}"),
		"calls, of the last one's":             repeat("NEXT := pair(LAST)"),
		"calls, with parts of their arguments": repeat("NEXT := first([[LAST, LAST], 1])"),
	} {
		// Maps are walked in another order each time.
		for range 20 {
			compiler, err := ast.CompileModules(map[string]string{"p.rego": fine + "doubling if {\n" + body + "}\n"})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if errs := limits.Check(compiler.Modules); len(errs) != 1 || errs[0].Location.Row != 11 {
				t.Errorf("%s: got %v", name, errs)
				break
			}
		}
	}
}

func TestOptions_MakeBuiltinErrorsStrict(t *testing.T) {
	if _, err := eval(t, `to_number("x")`); err == nil || errors.Is(err, limits.ErrLimit) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkGuards is what the limits cost a call that they allow.
func BenchmarkGuards(b *testing.B) {
	args := []*ast.Term{ast.StringTerm("host %s is also served from %s"), ast.ArrayTerm(ast.StringTerm("a.example.com"), ast.StringTerm("fleet/eu-1"))}
	f := topdown.GetBuiltin("sprintf")
	bctx := topdown.BuiltinContext{Context: context.Background()}
	b.ReportAllocs()
	for b.Loop() {
		if err := f(bctx, args, func(*ast.Term) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
