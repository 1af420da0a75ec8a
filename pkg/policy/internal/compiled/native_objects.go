package compiled

import "federator.dev/federator/pkg/policy/internal/value"

func objectGet(_ *value.Arena, args []value.Value) (value.Value, bool) {
	v, path, otherwise := args[0], args[1], args[2]
	if v.Kind() != value.Object {
		return leave()
	}
	if path.Kind() != value.Array {
		if !isKey(path) {
			return leave()
		}
		if v = v.Get(path); !v.Defined() {
			v = otherwise
		}
		return v, v.Defined()
	}
	for _, step := range path.Elems() {
		if !isKey(step) {
			return leave()
		}
		if v = v.Get(step); !v.Defined() {
			return otherwise, otherwise.Defined()
		}
	}
	return v, true
}

func objectKeys(a *value.Arena, args []value.Value) (value.Value, bool) {
	v := args[0]
	if v.Kind() != value.Object || v.Len() > maxNativeElements {
		return leave()
	}
	keys := a.Alloc(v.Len())
	for i, pairs := 0, v.Pairs(); i < len(keys); i++ {
		if keys[i] = pairs[2*i]; keys[i].Kind() != value.String && !isKey(keys[i]) {
			return leave()
		}
	}
	return value.SetOf(keys), true
}

func objectUnion(a *value.Arena, args []value.Value) (value.Value, bool) {
	x, y := args[0], args[1]
	if x.Kind() != value.Object || y.Kind() != value.Object || x.Len()+y.Len() > maxNativeElements || !plain(x, y) {
		return leave()
	}
	return merge(a, x, y), true
}

// merge returns the pairs of two objects: those of y, where both have a key, but that
// objects are merged.
func merge(a *value.Arena, x, y value.Value) value.Value {
	if x.Len() == 0 {
		return y
	}
	if y.Len() == 0 {
		return x
	}
	p, q := x.Pairs(), y.Pairs()
	out := a.Alloc(len(p) + len(q))[:0]
	for len(p) > 0 && len(q) > 0 {
		switch c := value.Compare(p[0], q[0]); {
		case c < 0:
			out, p = append(out, p[0], p[1]), p[2:]
		case c > 0:
			out, q = append(out, q[0], q[1]), q[2:]
		default:
			v := q[1]
			if v.Kind() == value.Object && p[1].Kind() == value.Object {
				v = merge(a, p[1], v)
			}
			out, p, q = append(out, p[0], v), p[2:], q[2:]
		}
	}
	return value.ObjectOf(append(append(out, p...), q...))
}

// selection returns the pairs of an object whose keys are among some, or are not.
func selection(among bool) native {
	return func(a *value.Arena, args []value.Value) (value.Value, bool) {
		v, keys := args[0], args[1]
		if v.Kind() != value.Object || v.Len() > maxNativeElements || !keys.IsCollection() || !plain(v, keys) {
			return leave()
		}
		if keys.Kind() == value.Array && v.Len()*keys.Len() > maxNativeCompared {
			return leave()
		}
		pairs := v.Pairs()
		out := a.Alloc(len(pairs))[:0]
		for i := 0; i < len(pairs); i += 2 {
			if isAmong(pairs[i], keys) == among {
				out = append(out, pairs[i], pairs[i+1])
			}
		}
		return value.ObjectOf(out), true
	}
}

// isAmong reports whether a key is an element of an array or a set, or a key of an object.
func isAmong(key, keys value.Value) bool {
	switch keys.Kind() {
	case value.Set:
		return keys.Has(key)
	case value.Object:
		return keys.Get(key).Defined()
	}
	for _, x := range keys.Elems() {
		if value.Equal(x, key) {
			return true
		}
	}
	return false
}
