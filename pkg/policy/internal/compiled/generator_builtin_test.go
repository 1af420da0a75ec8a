package compiled_test

import (
	"fmt"
	"strings"
)

// builtinCall is a builtin with the types of its arguments; a text in quotes is taken as it is.
type builtinCall struct {
	name   string
	args   []string
	result byte
}

func call(result byte, name string, args ...string) builtinCall {
	return builtinCall{name, args, result}
}

var builtinCalls = []builtinCall{
	call(number, "count", "c"), call(number, "count", "s"), call(number, "sum", "a"), call(number, "product", "a"),
	call(number, "abs", "n"), call(number, "round", "n"), call(number, "ceil", "n"), call(number, "floor", "n"),
	call(number, "to_number", "*"), call(number, "indexof", "s", "s"), call(number, "strings.count", "s", "s"),
	call(number, "bits.and", "n", "n"), call(number, "bits.or", "n", "n"), call(number, "units.parse", "s"),
	call(number, "time.parse_rfc3339_ns", "s"),
	call(text, "concat", "s", "a"), call(text, "concat", `"/"`, "S"), call(text, "lower", "s"), call(text, "upper", "s"),
	call(text, "replace", "s", "s", "s"), call(text, "substring", "s", "n", "n"), call(text, "trim", "s", "s"),
	call(text, "trim_prefix", "s", "s"), call(text, "trim_suffix", "s", "s"), call(text, "trim_space", "s"),
	call(text, "format_int", "n", "10"), call(text, "json.marshal", "*"), call(text, "type_name", "*"),
	call(text, "base64.encode", "s"), call(text, "crypto.sha256", "s"), call(text, "strings.reverse", "s"),
	call(list, "split", "s", "s"), call(list, "array.concat", "a", "a"), call(list, "array.slice", "a", "n", "n"),
	call(list, "array.reverse", "a"), call(list, "sort", "c"), call(list, "numbers.range", "1", "3"),
	call(list, "regex.find_n", `"[a-c]"`, "s", "-1"), call(list, "indexof_n", "s", "s"),
	call(mapping, "object.union", "o", "o"), call(mapping, "object.remove", "o", "a"), call(mapping, "object.filter", "o", "S"),
	call(mapping, "object.union_n", "x"), call(mapping, "json.filter", "o", "a"), call(mapping, "json.remove", "o", "a"),
	call(sets, "object.keys", "o"), call(sets, "union", "x"), call(sets, "intersection", "x"), call(sets, "graph.reachable", "x", "S"),
	call(anything, "object.get", "o", "*", "*"), call(anything, "object.get", "o", "a", "*"),
	call(anything, "max", "c"), call(anything, "min", "c"), call(anything, "json.unmarshal", "s"), call(anything, "yaml.unmarshal", "s"),
	call(truth, "startswith", "s", "s"), call(truth, "endswith", "s", "s"), call(truth, "contains", "s", "s"),
	call(truth, "is_string", "*"), call(truth, "is_number", "*"), call(truth, "is_array", "*"), call(truth, "is_object", "*"),
	call(truth, "is_set", "*"), call(truth, "is_boolean", "*"), call(truth, "is_null", "*"),
	call(truth, "regex.match", `"^[a-c]+$"`, "s"), call(truth, "regex.match", "s", "s"), call(truth, "glob.match", `"a*"`, "[]", "s"),
	call(truth, "object.subset", "o", "o"), call(truth, "object.subset", "S", "S"), call(truth, "net.cidr_contains", "s", "s"),
	call(truth, "strings.any_prefix_match", "s", "x"), call(truth, "json.is_valid", "s"), call(truth, "semver.is_valid", "*"),
}

// builtinOf is a builtin that returns a type, nil if there is none.
func (g *generator) builtinOf(typ byte) *builtinCall {
	var of []*builtinCall
	for i := range builtinCalls {
		if b := &builtinCalls[i]; b.result == typ || b.result == anything {
			of = append(of, b)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return pick(g, of)
}

// builtin calls a builtin: a reference may well be of another type than it takes.
func (g *generator) builtin(c *place, b *builtinCall, depth int) string {
	args := make([]string, len(b.args))
	for i, arg := range b.args {
		switch {
		case len(arg) > 1 || arg >= "0" && arg <= "9":
			args[i] = arg
		case g.chance(3):
			args[i] = g.opaque(c)
		case arg == "x": // of elements of one type
			args[i] = g.nestedArgument(b.name)
		case arg == "c":
			args[i] = g.term(c, pick(g, []byte{list, sets}), depth)
		default:
			args[i] = g.term(c, arg[0], depth)
		}
	}
	return fmt.Sprintf("%s(%s)", b.name, strings.Join(args, ", "))
}

// predicate is a call of a builtin as a condition.
func (g *generator) predicate(c *place) string {
	return g.builtin(c, g.builtinOf(truth), 1)
}

// nestedArgument is an argument of a builtin whose elements have a type.
func (g *generator) nestedArgument(name string) string {
	switch name {
	case "graph.reachable":
		return pick(g, []string{`{"a": ["b"], "b": {"a", "c"}, "c": []}`, "input.b", `{"x": {"b"}}`})
	case "object.union_n":
		return pick(g, []string{`[{"a": 1}, {"a": {"b": 2}}, {"a": {"c": 3}}]`, "input.a", "[input.a, input.b]"})
	case "union", "intersection":
		return pick(g, []string{"{{1, 2}, {2, 3}}", "set()", "{s | s := {input.a, input.b[_]}}"})
	}
	return pick(g, []string{`{"a", "b"}`, `["k-", ""]`, "input.items"})
}
