package compiled_test

import (
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/limits"
)

// signatures are the builtins of the allowlist by the kind of their results.
var signatures = func() map[kind][]signature {
	c := &chooser{bytes: make([]byte, 1<<20)} // the first of alternatives
	m := map[kind][]signature{}
	for _, b := range limits.Capabilities().Builtins {
		s := signatureOf(b)
		if strings.HasPrefix(s.name, "internal.") || b.Relation || s.result == nil || s.infix != "" || s.name == "eq" || s.name == "assign" {
			continue
		}
		k := c.typeOf(s.result).kind
		m[k] = append(m[k], s)
		if k != kAny && s.name == "json.patch" || s.name == "object.get" || s.name == "json.unmarshal" {
			m[kAny] = append(m[kAny], s)
		}
	}
	return m
}()

// Texts that are of use as arguments of some builtins.
var (
	patterns  = []string{"a", "^a", "[a-c]+", "a|b", ".", "(a)(b)?", "x.y", "("}
	cidrs     = []string{"10.0.0.0/8", "10.1.0.0/30", "10.0.0.1", "::1/128", "a", "10.1.0.0/33"}
	versions  = []string{"1.0.0", "1.2.3-rc1", "2.0.0", "a", "1.0"}
	instants  = []string{"0", "1700000000000000000", "-1", "1.5", "951782400000000000"}
	encoded   = []string{"YQ==", "YWI", "6162", "a%20b", "a=b&c=d", "!", "%zz"}
	encodings = []string{`{"a": 1}`, `[1, 2.50]`, `"a"`, `{`, `a: b`, `- 1`, `null`, `1e2`}
	durations = []string{"1s", "1h30m", "a", "-5ms"}
	formats   = []string{"%v", "%s-%v", "%d", "%q", "%5d|%v", "%v %v %v", "%.2f", "%x", "%%", "%T"}
	units     = []string{"1", "1K", "2Mi", "1.5G", "100m", "1x", "0.1", "5KB"}
	globs     = []string{"a*", "*.b", "**", "[a-c]", "{a,b}", "?"}
	uris      = []string{"http://a.b/c?d=e#f", "a", "http://[::1]:80", ":", "mailto:a@b"}
	layouts   = []string{"2006-01-02", "2006-01-02T15:04:05Z07:00", "RFC822"}
	dates     = []string{"2024-02-29", "2024-02-29T01:02:03Z", "2024-02-30", "a"}
)

// useful has texts for arguments, by their builtins' names or beginnings of these.
var useful = map[string][][]string{
	"regex.replace": {nil, patterns}, "regex.template_match": {{"a{b}", "{.}x"}, nil, {"{"}, {"}"}}, "regex.": {patterns},
	"glob.match": {globs}, "net.cidr_merge": nil, "net.cidr_expand": {cidrs[1:4]}, "net.cidr_contains_matches": {cidrs, cidrs}, "net.": {cidrs, cidrs}, "semver.": {versions, versions},
	"time.parse_duration_ns": {durations}, "time.parse_ns": {layouts, dates}, "time.parse_rfc3339_ns": {dates},
	"time.": {instants}, "base64": {encoded}, "hex.": {encoded}, "urlquery.": {encoded}, "json.unmarshal": {encodings},
	"json.is_valid": {encodings}, "yaml.is_valid": {encodings}, "yaml.unmarshal": {encodings}, "sprintf": {formats},
	"units.": {units}, "uri.": {uris}, "to_number": {numbers}, "format_int": {nil, {"10", "2", "16", "8", "3"}},
	"numbers.range": {{"0", "1", "3", "1.5"}, {"0", "2", "5", "-1"}, {"1", "2", "0"}}, "substring": {nil, {"0", "1", "-1"}, {"0", "1", "-1"}},
	"uuid.parse": {{"00000000-0000-1000-8000-000000000000", "a"}}, "split": {nil, {".", ",", ""}}, "concat": {{",", "", "-"}},
	"trim": {nil, {"a", " ", ""}}, "replace": {nil, {"a", ""}, {"x"}}, "round": {{"0.5", "1.5", "-0.5", "2.5"}},
}

func hint(name string, i int) []string {
	for n := len(name); n > 0; n-- {
		if list, ok := useful[name[:n]]; ok && (n == len(name) || strings.HasSuffix(name[:n], ".") || name[:n] == "base64" || name[:n] == "trim") {
			if i < len(list) {
				return list[i]
			}
			return nil
		}
	}
	return nil
}

// callBuiltin writes a call that has a result of a type.
func (g *generator) callBuiltin(t *typ, depth int) string {
	list := signatures[t.kind]
	if len(list) == 0 || g.chance(8) {
		list = signatures[kAny]
	}
	return g.call(pick(&g.chooser, list), depth)
}

func (g *generator) call(s signature, depth int) string {
	args := make([]string, len(s.args))
	for i, a := range s.args {
		args[i] = g.argument(s.name, i, g.typeOf(a), depth)
	}
	return fmt.Sprintf("%s(%s)", s.name, strings.Join(args, ", "))
}

func (g *generator) argument(name string, i int, t *typ, depth int) string {
	if list := hint(name, i); list != nil && g.chance(65) {
		text := pick(&g.chooser, list)
		if t.kind == kNum {
			return text
		}
		if t.kind == kStr {
			return fmt.Sprintf("%q", text)
		}
	}
	switch {
	case name == "json.patch" && i == 1:
		return g.patch(depth)
	case name == "graph.reachable" && i == 0:
		return g.expr(objOf(tStr, tStrs), depth-1)
	case name == "object.get" && i == 1 && g.chance(40):
		return g.expr(tStrs, depth-1)
	case (name == "sum" || name == "product") && g.chance(80):
		return g.expr(tNums, depth-1)
	case g.chance(3): // of a type that is known at run time only
		return g.untyped(depth)
	}
	return g.expr(t, depth-1)
}

// untyped writes a term that OPA's compiler knows no type of.
func (g *generator) untyped(depth int) string {
	if s := g.read(g.randomType(1), depth-1); strings.HasPrefix(s, "input") || strings.HasPrefix(s, "data.doc") {
		return s
	}
	return "input." + pick(&g.chooser, shape).key
}

func (g *generator) patch(depth int) string {
	op := pick(&g.chooser, []string{"add", "remove", "replace", "copy", "move", "test"})
	from := ""
	if op == "copy" || op == "move" {
		from = `, "from": "/b"`
	}
	path := pick(&g.chooser, []string{"/a", "/name", "/0", "/-", "/a/b", ""})
	return fmt.Sprintf(`[{"op": %q, "path": %q, "value": %s%s}]`, op, path, g.expr(tAny, depth-1), from)
}

// callFunction writes a call of a function that rules define, "" if there is none.
func (g *generator) callFunction(t *typ, depth int) string {
	for range 3 {
		if len(g.rules) == 0 {
			return ""
		}
		r := pick(&g.chooser, g.rules)
		if !r.function || !r.typ.fits(t) {
			continue
		}
		return g.callOf(r, depth)
	}
	return ""
}

func (g *generator) callOf(r rule, depth int) string {
	args := make([]string, len(r.args))
	for i, a := range r.args {
		args[i] = g.expr(a, depth-1)
	}
	return fmt.Sprintf("%s(%s)", g.nameOf(r), strings.Join(args, ", "))
}

// parseCapabilities are those that programs are parsed with.
var parseCapabilities = ast.CapabilitiesForThisVersion()
