package compiled

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"federator.dev/federator/pkg/policy/internal/value"
)

// native is a builtin on values. done is false where it leaves the call to OPA's
// implementation, which knows every error and every limit: arguments of other types than
// it takes, and collections and texts that are large. What it returns is built in the arena of m.
type native func(m *Machine, args []value.Value) (v value.Value, done bool)

// What natives take; OPA's implementations ask the limits about more.
const (
	maxNativeElements = 1000
	maxNativeText     = 16 << 10
)

// natives are the builtins that are called often, by name. Each is held to OPA's by
// TestNatives_DoWhatOPADoes.
var natives = map[string]native{
	"count": count, "internal.member_2": member, "internal.member_3": memberWithKey,
	"equal": comparison(func(c int) bool { return c == 0 }), "neq": comparison(func(c int) bool { return c != 0 }),
	"lt": comparison(func(c int) bool { return c < 0 }), "lte": comparison(func(c int) bool { return c <= 0 }),
	"gt": comparison(func(c int) bool { return c > 0 }), "gte": comparison(func(c int) bool { return c >= 0 }),

	"plus": integers(func(x, y int) (int, bool) { return x + y, small(x, y) }), "minus": minus,
	"mul": integers(func(x, y int) (int, bool) { return x * y, small(x, y) }),
	"div": integers(func(x, y int) (int, bool) { return quotient(x, y), y != 0 && small(x, y) && x%y == 0 }),
	"rem": integers(func(x, y int) (int, bool) { return remainder(x, y), y > 0 && x >= 0 && small(x, y) }),
	"and": sets(true, false), "or": sets(true, true),

	"array.concat": arrayConcat, "object.get": objectGet, "object.keys": objectKeys,

	"startswith": predicate(strings.HasPrefix), "endswith": predicate(strings.HasSuffix), "contains": predicate(strings.Contains),
	"trim": transform(strings.Trim), "trim_left": transform(strings.TrimLeft), "trim_right": transform(strings.TrimRight),
	"trim_prefix": transform(strings.TrimPrefix), "trim_suffix": transform(strings.TrimSuffix),
	"trim_space": func(_ *Machine, args []value.Value) (value.Value, bool) {
		return value.Text(strings.TrimSpace(textIn(args[0]))), isText(args[0])
	},
	"lower": ascii(strings.ToLower), "upper": ascii(strings.ToUpper),
	"concat": concat, "split": split2, "replace": replace, "sprintf": sprintf, "substring": substring,
	"strings.any_prefix_match": anyMatch(strings.HasPrefix), "strings.any_suffix_match": anyMatch(strings.HasSuffix),
	"regex.match": regexMatch, "re_match": regexMatch,

	"is_array": isKind(value.Array), "is_boolean": isKind(value.Boolean), "is_null": isKind(value.Null),
	"is_number": isKind(value.Integer, value.Number), "is_object": isKind(value.Object), "is_set": isKind(value.Set),
	"is_string": isKind(value.String), "type_name": typeName,
}

// isText reports whether a value is a string that natives take.
func isText(v value.Value) bool { return v.Kind() == value.String && v.Len() <= maxNativeText }

// textIn is the string that isText reports.
func textIn(v value.Value) string {
	if v.Kind() != value.String {
		return ""
	}
	return v.Str()
}

// weight is the number of elements of a value, nested ones included, or more than allowed.
func weight(v value.Value) int {
	if !v.IsCollection() {
		return 1
	}
	n := v.Len() + 1
	elems := []value.Value(nil)
	if n <= maxNativeElements {
		if elems = v.Elems(); v.Kind() == value.Object {
			elems = v.Pairs()
		}
	}
	for _, x := range elems {
		if n > maxNativeElements {
			break
		}
		if x.IsCollection() {
			n += weight(x)
		}
	}
	return n
}

func light(args ...value.Value) bool {
	for _, v := range args {
		if v.Kind() == value.String && v.Len() > maxNativeText || weight(v) > maxNativeElements {
			return false
		}
	}
	return true
}

func count(_ *Machine, args []value.Value) (value.Value, bool) {
	switch v := args[0]; {
	case v.IsCollection():
		return value.Int(v.Len()), true
	case isText(v):
		return value.Int(utf8.RuneCountInString(v.Str())), true
	}
	return value.Value{}, false
}

func member(_ *Machine, args []value.Value) (value.Value, bool) {
	x, in := args[0], args[1]
	if !light(x, in) {
		return value.Value{}, false
	}
	switch in.Kind() {
	case value.Set:
		return value.Bool(in.Has(x)), true
	case value.Array:
		return value.Bool(slices.ContainsFunc(in.Elems(), func(y value.Value) bool { return value.Equal(x, y) })), true
	case value.Object:
		pairs := in.Pairs()
		for i := 1; i < len(pairs); i += 2 {
			if value.Equal(x, pairs[i]) {
				return value.True, true
			}
		}
	}
	return value.False, true
}

func memberWithKey(_ *Machine, args []value.Value) (value.Value, bool) {
	key, x, in := args[0], args[1], args[2]
	if !light(key, x, in) {
		return value.Value{}, false
	}
	if in.Kind() == value.Set {
		return value.Bool(in.Has(key) && value.Equal(key, x)), true
	}
	v := in.Get(key)
	return value.Bool(v.Defined() && value.Equal(v, x)), true
}

func comparison(holds func(int) bool) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		if !light(args...) {
			return value.Value{}, false
		}
		return value.Bool(holds(value.Compare(args[0], args[1]))), true
	}
}

// small reports whether neither the sum nor the product of two numbers overflows.
func small(x, y int) bool {
	const limit = 1 << 31
	return -limit < x && x < limit && -limit < y && y < limit
}

func quotient(x, y int) int {
	if y == 0 {
		return 0
	}
	return x / y
}

func remainder(x, y int) int {
	if y == 0 {
		return 0
	}
	return x % y
}

func integers(f func(x, y int) (n int, ok bool)) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		if args[0].Kind() != value.Integer || args[1].Kind() != value.Integer {
			return value.Value{}, false
		}
		n, ok := f(args[0].Int(), args[1].Int())
		return value.Int(n), ok
	}
}

var (
	difference     = integers(func(x, y int) (int, bool) { return x - y, small(x, y) })
	setsDifference = sets(false, false)
)

func minus(m *Machine, args []value.Value) (value.Value, bool) {
	if args[0].Kind() == value.Set {
		return setsDifference(m, args)
	}
	return difference(m, args)
}

// sets returns the elements of the first set that the second has, or does not have, and all
// of both.
func sets(shared, all bool) native {
	return func(m *Machine, args []value.Value) (value.Value, bool) {
		x, y := args[0], args[1]
		if x.Kind() != value.Set || y.Kind() != value.Set || !light(x, y) {
			return value.Value{}, false
		}
		out := m.arena.Alloc(x.Len() + y.Len())[:0]
		for _, e := range x.Elems() {
			if all || y.Has(e) == shared {
				out = append(out, e)
			}
		}
		if all {
			return m.arena.Set(append(out, y.Elems()...)), true
		}
		return value.SetOf(out), true
	}
}

func arrayConcat(m *Machine, args []value.Value) (value.Value, bool) {
	x, y := args[0], args[1]
	if x.Kind() != value.Array || y.Kind() != value.Array || !light(x, y) {
		return value.Value{}, false
	}
	return value.ArrayOf(append(append(m.arena.Alloc(x.Len() + y.Len())[:0], x.Elems()...), y.Elems()...)), true
}

func objectGet(_ *Machine, args []value.Value) (value.Value, bool) {
	v, path, otherwise := args[0], args[1], args[2]
	if v.Kind() != value.Object {
		return value.Value{}, false
	}
	if path.Kind() != value.Array {
		if v = v.Get(path); !v.Defined() {
			v = otherwise
		}
		return v, true
	}
	for _, step := range path.Elems() {
		if v = v.Get(step); !v.Defined() {
			return otherwise, true
		}
	}
	return v, true
}

func objectKeys(m *Machine, args []value.Value) (value.Value, bool) {
	v := args[0]
	if v.Kind() != value.Object || v.Len() > maxNativeElements {
		return value.Value{}, false
	}
	keys := m.arena.Alloc(v.Len())
	for i, pairs := 0, v.Pairs(); i < len(keys); i++ {
		keys[i] = pairs[2*i]
	}
	return value.SetOf(keys), true
}

func isKind(kinds ...value.Kind) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		return value.Bool(slices.Contains(kinds, args[0].Kind())), true
	}
}

var typeNames = map[value.Kind]value.Value{
	value.Null: value.Text("null"), value.Boolean: value.Text("boolean"), value.Integer: value.Text("number"), value.Number: value.Text("number"),
	value.String: value.Text("string"), value.Array: value.Text("array"), value.Object: value.Text("object"), value.Set: value.Text("set"),
}

func typeName(_ *Machine, args []value.Value) (value.Value, bool) {
	return typeNames[args[0].Kind()], true
}

func sprintf(_ *Machine, args []value.Value) (value.Value, bool) {
	format, list := args[0], args[1]
	if !isText(format) || list.Kind() != value.Array || !light(list) || !plainFormat(format.Str()) {
		return value.Value{}, false
	}
	operands := make([]any, list.Len())
	size := format.Len()
	for i, v := range list.Elems() {
		switch v.Kind() {
		case value.String:
			operands[i], size = v.Str(), size+v.Len()
		case value.Integer:
			operands[i] = int64(v.Int())
		case value.Number:
			return value.Value{}, false
		default:
			n, ok := v.Size(maxNativeText)
			if size += n; !ok {
				return value.Value{}, false
			}
			operands[i] = v.Term().Value.String()
		}
	}
	if size > maxNativeText {
		return value.Value{}, false
	}
	return value.Text(fmt.Sprintf(format.Str(), operands...)), true
}

// plainFormat reports whether a format has no widths, precisions and indexes, and few verbs.
func plainFormat(s string) bool {
	for n := 0; ; n++ {
		i := strings.IndexByte(s, '%')
		switch {
		case i < 0:
			return true
		case n == 32 || i+1 == len(s) || !strings.ContainsRune("vsdq%", rune(s[i+1])):
			return false
		}
		s = s[i+2:]
	}
}
