package compiled_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	opatypes "github.com/open-policy-agent/opa/v1/types"

	"federator.dev/federator/pkg/policy/internal/compiled"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/test/seed"
)

// callsOfBuiltin is how often each builtin is called.
const callsOfBuiltin = 300

// TestBuiltins_AgreeWithTopdown calls every builtin that policies may use, with arguments of
// right types mostly: from the input, as constants, and both strictly and not.
func TestBuiltins_AgreeWithTopdown(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	calls, values := 0, 0
	for _, b := range limits.Capabilities().Builtins {
		if strings.HasPrefix(b.Name, "internal.") || b.Name == "print" || b.Name == "eq" || b.Name == "assign" || b.Relation {
			continue
		}
		found := 0
		for i := range callsOfBuiltin / 20 {
			rule, constants := callRule(r, b)
			e := asking(t, rule, "x = data.p.r")
			e.strict, e.indexing, e.data = i%2 == 0, true, ast.NewObject()
			program, err := e.compile()
			if err != nil {
				t.Errorf("%s is not compiled: %v", rule, err)
				break
			}
			var m compiled.Machine
			for range 20 {
				e.input = arguments(r, b, constants)
				if how := e.disagreementOf(&m, program); how != "" {
					t.Errorf("%s\ninput %v, strict %v\n%s", rule, e.input, e.strict, how)
					break
				}
				calls++
				if o := e.ofProgram(&m, program); len(o.solutions) > 0 {
					found++
				}
			}
		}
		values += found
		if found == 0 && b.Name != "crypto.x509.parse_certificates" {
			t.Errorf("%s never has a value", b.Name)
		}
	}
	t.Logf("%d calls, %d of them with values", calls, values)
}

// callRule is a rule that calls a builtin; constants says which arguments are constants.
func callRule(r *rand.Rand, b *ast.Builtin) (rule string, constants []bool) {
	args := make([]string, len(b.Decl.FuncArgs().Args))
	constants = make([]bool, len(args))
	for i, typ := range b.Decl.FuncArgs().Args {
		args[i] = fmt.Sprintf("input.arg%d", i)
		if constants[i] = r.IntN(4) == 0; constants[i] {
			args[i] = argument(r, b.Name, i, typ)
		}
	}
	return fmt.Sprintf("r := %s(%s)", b.Name, strings.Join(args, ", ")), constants
}

// arguments are the input of a rule that calls a builtin: some are missing, or of any type.
func arguments(r *rand.Rand, b *ast.Builtin, constants []bool) *ast.Term {
	o := ast.NewObject()
	for i, typ := range b.Decl.FuncArgs().Args {
		if constants[i] || r.IntN(20) == 0 {
			continue
		}
		text := argument(r, b.Name, i, typ)
		if r.IntN(12) == 0 {
			text = valueOfType(r, opatypes.A, 2)
		}
		o.Insert(ast.StringTerm(fmt.Sprintf("arg%d", i)), ast.MustParseTerm(text))
	}
	return ast.NewTerm(o)
}

// argument writes an argument of a builtin.
func argument(r *rand.Rand, name string, i int, typ opatypes.Type) string {
	if list := usefulFor(name, i); list != nil && r.IntN(10) < 8 {
		return list[r.IntN(len(list))]
	}
	return valueOfType(r, typ, 2)
}

var (
	someTexts   = []string{`""`, `"a"`, `"b"`, `"ab"`, `"a b"`, `"a.b"`, `"é"`, `"7"`, `"-1.5"`, `"a,b"`, `"%v"`, `" A "`, `"10.0.0.0/8"`}
	someNumbers = []string{"0", "1", "2", "3", "-1", "1.5", "1.0", "1e2", "9223372036854775807", "9223372036854775808", "-0.5", "100", "12345678901234567890123"}
)

// valueOfType writes a constant of a type of OPA.
func valueOfType(r *rand.Rand, typ opatypes.Type, depth int) string {
	switch typ := typ.(type) {
	case *opatypes.NamedType:
		return valueOfType(r, typ.Type, depth)
	case opatypes.Null:
		return "null"
	case opatypes.Boolean:
		return []string{"true", "false"}[r.IntN(2)]
	case opatypes.Number:
		return someNumbers[r.IntN(len(someNumbers))]
	case opatypes.String:
		return someTexts[r.IntN(len(someTexts))]
	case opatypes.Any:
		if len(typ) > 0 {
			return valueOfType(r, typ[r.IntN(len(typ))], depth)
		}
		return anyValue(r, depth)
	case *opatypes.Set:
		return collected(r, "{", "}", "set()", func() string { return valueOfType(r, typ.Of(), depth-1) })
	case *opatypes.Array:
		return arrayOfType(r, typ, depth)
	case *opatypes.Object:
		return objectOfType(r, typ, depth)
	}
	return "null"
}

func anyValue(r *rand.Rand, depth int) string {
	kinds := []opatypes.Type{opatypes.S, opatypes.N, opatypes.B, opatypes.Nl, opatypes.S, opatypes.N}
	if depth > 0 {
		kinds = append(kinds, opatypes.NewArray(nil, opatypes.A), opatypes.NewSet(opatypes.A),
			opatypes.NewObject(nil, opatypes.NewDynamicProperty(opatypes.S, opatypes.A)))
	}
	return valueOfType(r, kinds[r.IntN(len(kinds))], depth)
}

func collected(r *rand.Rand, begin, end, empty string, element func() string) string {
	list := make([]string, r.IntN(4))
	for i := range list {
		list[i] = element()
	}
	if len(list) == 0 {
		return empty
	}
	return begin + strings.Join(list, ", ") + end
}

func arrayOfType(r *rand.Rand, typ *opatypes.Array, depth int) string {
	if typ.Len() == 0 {
		return collected(r, "[", "]", "[]", func() string { return valueOfType(r, typ.Dynamic(), depth-1) })
	}
	var list []string
	for i := range typ.Len() {
		list = append(list, valueOfType(r, typ.Select(i), depth-1))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func objectOfType(r *rand.Rand, typ *opatypes.Object, depth int) string {
	var list []string
	for _, p := range typ.StaticProperties() {
		list = append(list, fmt.Sprintf("%q: %s", p.Key, valueOfType(r, p.Value, depth-1)))
	}
	if d := typ.DynamicProperties(); d != nil {
		for _, key := range r.Perm(4)[:r.IntN(3)] { // no key twice: documents have none
			list = append(list, someTexts[key]+": "+valueOfType(r, d.Value, depth-1))
		}
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// useful has arguments that builtins, by the longest beginning of their names, can do
// something with.
var useful = map[string][][]string{
	"regex.":                           {{`"a"`, `"^a"`, `"[a-c]+"`, `"(a)(b)?"`, `"("`, `"."`}},
	"regex.replace":                    {nil, {`"a"`, `"(a)b"`, `"."`}, {`"x$1"`, `""`}},
	"regex.template_match":             {{`"a{b}"`, `"{.}b"`}, nil, {`"{"`}, {`"}"`}},
	"regex.find_n":                     {{`"a"`, `"[a-c]"`}, nil, {"-1", "1", "0"}},
	"regex.find_all_string_submatch_n": {{`"a"`, `"([a-c])"`}, nil, {"-1", "1", "0"}},
	"glob.match":                       {{`"a*"`, `"*.b"`, `"**"`, `"[a-c]"`, `"{a,b}"`}, {"null", "[]", `["."]`}},
	"net.cidr_merge":                   {{`["10.0.0.0/8", "10.1.0.0/30"]`, `["10.0.0.1"]`, `{"10.0.0.0/25", "10.0.0.128/25"}`, `["a"]`}},
	"net.cidr_expand":                  {{`"10.1.0.0/30"`, `"10.0.0.1/32"`, `"a"`}},
	"net.cidr_contains_matches":        {{`"10.0.0.0/8"`, `["10.0.0.0/8", "::/0"]`, `{"a": "10.0.0.0/8"}`}, {`"10.1.0.0/30"`, `{"10.0.0.1"}`, `[["10.0.0.1", 1]]`}},
	"net.":                             {{`"10.0.0.0/8"`, `"10.1.0.0/30"`, `"a"`}, {`"10.1.0.0/30"`, `"10.0.0.1"`, `"::1"`}},
	"semver.":                          {{`"1.0.0"`, `"1.2.3-rc1"`, `"a"`}, {`"1.0.0"`, `"2.0.0"`}},
	"time.parse_duration_ns":           {{`"1s"`, `"1h30m"`, `"a"`}},
	"time.parse_ns":                    {{`"2006-01-02"`, `"RFC822"`}, {`"2024-02-29"`, `"2024-02-30"`}},
	"time.parse_rfc3339_ns":            {{`"2024-02-29T01:02:03Z"`, `"2024-02-30T00:00:00Z"`}},
	"time.add_date":                    {{"0", "1700000000000000000"}, {"1", "-1"}, {"0", "13"}, {"31"}},
	"time.diff":                        {{"0", "1700000000000000000"}, {"951782400000000000", "1"}},
	"time.":                            {{"0", "1700000000000000000", `[1700000000000000000, "UTC"]`, "-1"}},
	"base64":                           {{`"YQ=="`, `"YWI"`, `"!"`}},
	"hex.":                             {{`"6162"`, `"zz"`}},
	"urlquery.encode_object":           {{`{"a": "b"}`, `{"a": ["b", "c"]}`}},
	"urlquery.":                        {{`"a%20b"`, `"a=b&c=d"`, `"%zz"`}},
	"json.unmarshal":                   {{`"{\"a\": 1.0}"`, `"[1, 2.50]"`, `"{"`, `"1e2"`}},
	"json.is_valid":                    {{`"{\"a\": 1}"`, `"{"`}},
	"json.patch":                       {{`{"a": {"b": 1}}`, `[1, 2]`, `{}`}, {`[{"op": "add", "path": "/a", "value": 2}]`, `[{"op": "remove", "path": "/a/b"}]`, `[{"op": "replace", "path": "/0", "value": {1}}]`, `[{"op": "copy", "from": "/a", "path": "/b"}]`, `[{"op": "test", "path": "/a", "value": 1}]`, `[{"op": "move", "from": "/a", "path": "/c"}]`, `[{"op": "remove", "path": ""}]`}},
	"json.":                            {{`{"a": {"b": 1, "c": [1, 2]}, "b": 2}`}, {`["a/b"]`, `{"a/c/0", "b"}`, `[["a", "b"]]`}},
	"yaml.is_valid":                    {{`"a: b"`, `"a: ["`}},
	"yaml.unmarshal":                   {{`"a: b"`, `"- 1.0"`, `"a: ["`}},
	"sprintf":                          {{`"%v"`, `"%s-%v"`, `"%d"`, `"%5.1f|"`, `"%q"`}},
	"units.":                           {{`"1"`, `"1K"`, `"2Mi"`, `"1.5G"`, `"100m"`, `"1x"`}},
	"uri.":                             {{`"http://a.b/c?d=e#f"`, `":"`, `"a"`}},
	"to_number":                        {{`"1.50"`, `"1e2"`, "null", "true", `"a"`, "1.0"}},
	"format_int":                       {nil, {"10", "2", "16", "8"}},
	"numbers.range":                    {{"0", "1", "1.0", "3"}, {"0", "2", "5"}, {"1", "2", "0"}},
	"substring":                        {nil, {"0", "1", "-1"}, {"0", "1", "-1"}},
	"uuid.parse":                       {{`"00000000-0000-1000-8000-000000000000"`, `"a"`}},
	"split":                            {nil, {`"."`, `","`, `""`}},
	"strings.split_n":                  {nil, {`"."`, `","`}, {"-1", "1", "2"}},
	"array.slice":                      {nil, {"0", "1", "-1"}, {"1", "2", "9"}},
	"graph.reachable":                  {{`{"a": ["b"], "b": {"a", "c"}}`}, {`["a"]`, `{"b"}`}},
	"object.get":                       {{`{"a": {"b": 1}}`, `{1: 2}`}, {`"a"`, `["a", "b"]`, "1.0"}},
	"sum":                              {{"[1, 1.0]", "{1, 2}", "[0.1, 0.2]"}},
	"product":                          {{"[1, 1.0]", "{1, 2}", "[0.1, 0.2]"}},
	"crypto.hmac.equal":                {{`"a"`}, {`"a"`, `"b"`}},
	"strings.replace_n":                {{`{"a": "b", "b": "c"}`}},
	"bits.":                            {{"1", "5", "-3", "1.0"}, {"1", "2", "3"}},
	"rem":                              {{"7", "-7", "1.0"}, {"2", "0", "3"}},
	"bits.rsh":                         {{"5", "1024"}, {"1", "2", "0"}},
	"strings.any_":                     {{`"ab"`, `["ab", "c"]`}, {`"a"`, `{"a", "b"}`}},
	"minus":                            {{"1", "1.0", "{1, 2}"}, {"1", "2.5", "{1.0}"}},
	"concat":                           {{`","`, `""`}},
}

func usefulFor(name string, i int) []string {
	for n := len(name); n > 0; n-- {
		if list, ok := useful[name[:n]]; ok {
			if i < len(list) {
				return list[i]
			}
			return nil
		}
	}
	return nil
}
