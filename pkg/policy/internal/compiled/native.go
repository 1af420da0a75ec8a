package compiled

import (
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// native is a builtin on values. done is false where it leaves the call to OPA's
// implementation, which knows every error and every limit: arguments of other types than
// it takes, and collections and texts that are large. What it returns is built in a, or
// aliases its arguments, which it does not keep.
type native func(a *value.Arena, args []value.Value) (v value.Value, done bool)

// What natives take and return at most. It is far below what the guards of OPA's
// implementations allow, so that none of them could refuse a call that was done here.
const (
	maxNativeElements = 1000     // of one collection
	maxNativeWeight   = 10_000   // elements of arguments, nested ones included
	maxNativeText     = 64 << 10 // bytes of a string, and of all strings of a collection
	maxNativeCompared = 20_000   // comparisons of elements of one argument with those of another
)

// natives are the builtins that are called often, by name. Each is held to OPA's by
// TestNatives_DoWhatOPADoes.
var natives = map[string]native{
	"equal": comparison(func(c int) bool { return c == 0 }), "neq": comparison(func(c int) bool { return c != 0 }),
	"lt": comparison(func(c int) bool { return c < 0 }), "lte": comparison(func(c int) bool { return c <= 0 }),
	"gt": comparison(func(c int) bool { return c > 0 }), "gte": comparison(func(c int) bool { return c >= 0 }),
	"internal.member_2": member, "internal.member_3": memberWithKey,

	"plus": integers(plus), "minus": minus, "mul": integers(times), "div": integers(quotient), "rem": integers(remainder),
	"abs": abs, "round": integer, "ceil": integer, "floor": integer,
	"format_int": formatInt, "to_number": toNumber, "units.parse": parseUnits, "units.parse_bytes": parseBytes,

	"count": count, "sum": sum, "max": best(func(c int) bool { return c >= 0 }), "min": best(func(c int) bool { return c <= 0 }),
	"sort": sorted, "all": allTrue, "any": anyTrue,
	"and": sets(intersect), "or": sets(unite), "set_diff": sets(subtract), "intersection": intersection, "union": union,
	"array.concat": arrayConcat, "array.slice": arraySlice, "array.reverse": arrayReverse,
	"object.get": objectGet, "object.keys": objectKeys, "object.union": objectUnion,
	"object.remove": selection(false), "object.filter": selection(true),

	"contains": predicate(strings.Contains), "startswith": predicate(strings.HasPrefix), "endswith": predicate(strings.HasSuffix),
	"strings.any_prefix_match": anyMatch(strings.HasPrefix), "strings.any_suffix_match": anyMatch(strings.HasSuffix),
	"strings.count": occurrences, "strings.reverse": reverse, "indexof": indexOf, "lower": ascii(strings.ToLower), "upper": ascii(strings.ToUpper),
	"trim": cut(strings.Trim), "trim_left": cut(strings.TrimLeft), "trim_right": cut(strings.TrimRight), "trim_space": trimSpace,
	"trim_prefix": cut(strings.TrimPrefix), "trim_suffix": cut(strings.TrimSuffix),
	"concat": concat, "split": splitText, "replace": replace, "substring": substring, "sprintf": sprintf,

	"net.cidr_contains": cidrContains, "semver.compare": semverCompare,
	"time.parse_rfc3339_ns": parseRFC3339, "time.parse_duration_ns": parseDuration, "time.format": formatTime,

	"is_array": isKind(value.Array), "is_boolean": isKind(value.Boolean), "is_null": isKind(value.Null),
	"is_number": isKind(value.Integer, value.Number), "is_object": isKind(value.Object), "is_set": isKind(value.Set),
	"is_string": isKind(value.String), "type_name": typeName,
	"cast_array": castArray, "cast_set": castSet, "cast_string": cast(value.String), "cast_boolean": cast(value.Boolean),
	"cast_null": cast(value.Null), "cast_object": cast(value.Object),
}

// matchers are those that keep the patterns they compile.
var matchers = map[string]func(m *Machine, args []value.Value) (v value.Value, done bool){
	"regex.match": regexMatch, "re_match": regexMatch, "glob.match": globMatch,
}

// nativeOf returns what does a builtin on values, nil if that is left to OPA.
func nativeOf(name string) func(m *Machine, args []value.Value) (v value.Value, done bool) {
	if f := natives[name]; f != nil {
		return func(m *Machine, args []value.Value) (value.Value, bool) { return f(&m.arena, args) }
	}
	return matchers[name]
}

// leave is the result of a native that leaves a call to OPA.
func leave() (value.Value, bool) { return value.Value{}, false }

// isText reports whether values are strings that natives take.
func isText(vs ...value.Value) bool {
	for _, v := range vs {
		if v.Kind() != value.String || v.Len() > maxNativeText {
			return false
		}
	}
	return true
}

// weight is what remains of how much values may hold, nested ones included.
type weight struct {
	elements, text int
	numbers        bool // other than integers
}

// take takes a value off what remains, and reports whether it fits.
func (w *weight) take(v value.Value) bool {
	w.elements--
	var elems []value.Value
	switch v.Kind() {
	case value.Undefined:
		return false
	case value.Number:
		if w.text -= v.Len(); !w.numbers {
			return false
		}
	case value.String:
		w.text -= v.Len()
	case value.Array, value.Set:
		elems = v.Elems()
	case value.Object:
		elems = v.Pairs()
	}
	if w.elements < len(elems) {
		return false
	}
	for _, x := range elems {
		if !w.take(x) {
			return false
		}
	}
	return w.elements >= 0 && w.text >= 0
}

// plain reports whether values hold little, and no numbers but integers: then values that
// are equal are the same, and it does not matter which of them a result has. OPA tells apart
// by hash some others that are equal.
func plain(vs ...value.Value) bool {
	w := weight{elements: maxNativeWeight, text: maxNativeText}
	for _, v := range vs {
		if !w.take(v) {
			return false
		}
	}
	return true
}

func comparison(holds func(int) bool) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		x, y := args[0], args[1]
		if x.IsCollection() && y.IsCollection() {
			if x.Len() > y.Len() {
				x, y = y, x // comparing ends with the shorter
			}
			if !plain(x) && !plain(y) {
				return leave()
			}
		} else if x.Kind() == value.Number || y.Kind() == value.Number {
			return leave()
		}
		return value.Bool(holds(value.Compare(args[0], args[1]))), true
	}
}

func isKind(kinds ...value.Kind) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		for _, k := range kinds {
			if args[0].Kind() == k {
				return value.True, true
			}
		}
		return value.False, args[0].Defined()
	}
}

var typeNames = [...]value.Value{
	value.Null: value.Text("null"), value.Boolean: value.Text("boolean"), value.Integer: value.Text("number"), value.Number: value.Text("number"),
	value.String: value.Text("string"), value.Array: value.Text("array"), value.Object: value.Text("object"), value.Set: value.Text("set"),
}

func typeName(_ *value.Arena, args []value.Value) (value.Value, bool) {
	name := typeNames[args[0].Kind()]
	return name, name.Defined()
}

// cast returns a value that is of a kind already.
func cast(k value.Kind) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		return args[0], args[0].Kind() == k
	}
}
