package compiled

import (
	"slices"
	"unicode/utf8"

	"federator.dev/federator/pkg/policy/internal/value"
)

func count(_ *value.Arena, args []value.Value) (value.Value, bool) {
	switch v := args[0]; {
	case v.IsCollection():
		return value.Int(v.Len()), true
	case isText(v):
		return value.Int(utf8.RuneCountInString(v.Str())), true
	}
	return leave()
}

// sought reports whether a value may be compared with each element of a collection,
// however large that is if the value is a scalar.
func sought(x, in value.Value) bool {
	switch x.Kind() {
	case value.Number:
		return false
	case value.Integer:
		return !in.IsCollection() || in.Len() <= maxNativeWeight
	case value.Array, value.Object, value.Set:
		return plain(x, in)
	}
	return true
}

func member(_ *value.Arena, args []value.Value) (value.Value, bool) {
	x, in := args[0], args[1]
	if !sought(x, in) {
		return leave()
	}
	found := false
	switch in.Kind() {
	case value.Set:
		found = in.Has(x)
	case value.Array:
		for _, y := range in.Elems() {
			if found = value.Equal(x, y); found {
				break
			}
		}
	case value.Object:
		pairs := in.Pairs()
		for i := 1; i < len(pairs) && !found; i += 2 {
			found = value.Equal(x, pairs[i])
		}
	}
	return value.Bool(found), true
}

func memberWithKey(_ *value.Arena, args []value.Value) (value.Value, bool) {
	key, x, in := args[0], args[1], args[2]
	if !sought(x, in) || !isKey(key) {
		return leave()
	}
	if in.Kind() == value.Set {
		return value.Bool(in.Has(key) && value.Equal(key, x)), true
	}
	v := in.Get(key)
	return value.Bool(v.Defined() && value.Equal(v, x)), true
}

// isKey reports whether a value is one that OPA finds by its hash.
func isKey(v value.Value) bool {
	return v.Kind() != value.Number && (!v.IsCollection() || plain(v))
}

// isList reports whether a value is an array or a set that natives take.
func isList(v value.Value) bool {
	return (v.Kind() == value.Array || v.Kind() == value.Set) && v.Len() <= maxNativeElements
}

// best returns the last element that is better than, or as good as, those before it.
func best(better func(c int) bool) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		v := args[0]
		if !isList(v) || v.Len() == 0 || !plain(v) {
			return leave()
		}
		top := v.Elems()[0]
		for _, x := range v.Elems()[1:] {
			if better(value.Compare(x, top)) {
				top = x
			}
		}
		return top, true
	}
}

func sorted(a *value.Arena, args []value.Value) (value.Value, bool) {
	v := args[0]
	switch {
	case !isList(v) || !plain(v):
		return leave()
	case v.Kind() == value.Set || slices.IsSortedFunc(v.Elems(), value.Compare):
		return value.ArrayOf(v.Elems()), true
	}
	list := append(a.Alloc(v.Len())[:0], v.Elems()...)
	slices.SortFunc(list, value.Compare)
	return value.ArrayOf(list), true
}

func allTrue(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isList(args[0]) || !plain(args[0]) {
		return leave()
	}
	for _, x := range args[0].Elems() {
		if !x.IsTrue() {
			return value.False, true
		}
	}
	return value.True, true
}

func anyTrue(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isList(args[0]) || !plain(args[0]) {
		return leave()
	}
	return value.Bool(slices.ContainsFunc(args[0].Elems(), value.Value.IsTrue)), true
}

// sets combines two sets, whose elements are in order.
func sets(combine func(a *value.Arena, x, y []value.Value) []value.Value) native {
	return func(a *value.Arena, args []value.Value) (value.Value, bool) {
		x, y := args[0], args[1]
		if x.Kind() != value.Set || y.Kind() != value.Set || x.Len()+y.Len() > maxNativeElements || !plain(x, y) {
			return leave()
		}
		return value.SetOf(combine(a, x.Elems(), y.Elems())), true
	}
}

func unite(a *value.Arena, x, y []value.Value) []value.Value {
	if len(x) == 0 {
		return y
	}
	if len(y) == 0 {
		return x
	}
	out := a.Alloc(len(x) + len(y))[:0]
	for len(x) > 0 && len(y) > 0 {
		c := value.Compare(x[0], y[0])
		if c <= 0 {
			out, x = append(out, x[0]), x[1:]
		}
		if c > 0 {
			out = append(out, y[0])
		}
		if c >= 0 {
			y = y[1:]
		}
	}
	return append(append(out, x...), y...)
}

func intersect(a *value.Arena, x, y []value.Value) []value.Value {
	out := a.Alloc(min(len(x), len(y)))[:0]
	for len(x) > 0 && len(y) > 0 {
		c := value.Compare(x[0], y[0])
		if c == 0 {
			out = append(out, x[0])
		}
		if c <= 0 {
			x = x[1:]
		}
		if c >= 0 {
			y = y[1:]
		}
	}
	return out
}

func subtract(a *value.Arena, x, y []value.Value) []value.Value {
	if len(y) == 0 {
		return x
	}
	out := a.Alloc(len(x))[:0]
	for len(x) > 0 && len(y) > 0 {
		c := value.Compare(x[0], y[0])
		if c < 0 {
			out = append(out, x[0])
		}
		if c <= 0 {
			x = x[1:]
		}
		if c >= 0 {
			y = y[1:]
		}
	}
	return append(out, x...)
}

// areSets reports whether a value is a set of sets that have few elements together.
func areSets(v value.Value) bool {
	if v.Kind() != value.Set || !plain(v) {
		return false
	}
	n := v.Len()
	for _, x := range v.Elems() {
		if n += x.Len(); x.Kind() != value.Set || n > maxNativeElements {
			return false
		}
	}
	return true
}

func intersection(a *value.Arena, args []value.Value) (value.Value, bool) {
	if !areSets(args[0]) {
		return leave()
	}
	if args[0].Len() == 0 {
		return value.EmptySet, true
	}
	list := args[0].Elems()
	common := list[0].Elems()
	for _, x := range list[1:] {
		common = intersect(a, common, x.Elems())
	}
	return value.SetOf(common), true
}

func union(a *value.Arena, args []value.Value) (value.Value, bool) {
	if !areSets(args[0]) {
		return leave()
	}
	n := 0
	for _, x := range args[0].Elems() {
		n += x.Len()
	}
	elems := a.Alloc(n)[:0]
	for _, x := range args[0].Elems() {
		elems = append(elems, x.Elems()...)
	}
	return a.Set(elems), true
}

func castArray(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isList(args[0]) {
		return leave()
	}
	return value.ArrayOf(args[0].Elems()), true
}

func castSet(a *value.Arena, args []value.Value) (value.Value, bool) {
	v := args[0]
	switch {
	case v.Kind() == value.Set:
		return v, true
	case !isList(v) || !plain(v):
		return leave()
	}
	return a.Set(append(a.Alloc(v.Len())[:0], v.Elems()...)), true
}

func arrayConcat(a *value.Arena, args []value.Value) (value.Value, bool) {
	x, y := args[0], args[1]
	switch {
	case x.Kind() != value.Array || y.Kind() != value.Array || x.Len()+y.Len() > maxNativeElements:
		return leave()
	case x.Len() == 0:
		return y, true
	case y.Len() == 0:
		return x, true
	}
	return value.ArrayOf(append(append(a.Alloc(x.Len() + y.Len())[:0], x.Elems()...), y.Elems()...)), true
}

func arraySlice(_ *value.Arena, args []value.Value) (value.Value, bool) {
	v, from, to := args[0], args[1], args[2]
	if v.Kind() != value.Array || v.Len() > maxNativeElements || from.Kind() != value.Integer || to.Kind() != value.Integer {
		return leave()
	}
	end := min(max(to.Int(), 0), v.Len())
	start := min(max(from.Int(), 0), end)
	return value.ArrayOf(v.Elems()[start:end]), true
}

func arrayReverse(a *value.Arena, args []value.Value) (value.Value, bool) {
	v := args[0]
	if v.Kind() != value.Array || v.Len() > maxNativeElements {
		return leave()
	}
	list := append(a.Alloc(v.Len())[:0], v.Elems()...)
	slices.Reverse(list)
	return value.ArrayOf(list), true
}
