package value

import "federator.dev/federator/pkg/policy/internal/mask"

// EqualUnder reports whether m reads the same in two values of JSON, so that no policy under
// it can distinguish them.
func EqualUnder(a, b Value, m *mask.Mask) bool {
	switch {
	case m == nil:
		return true
	case m.All || a.kind != b.kind:
		return identical(a, b)
	}
	switch a.kind {
	case Object:
		return a.p == b.p && a.n == b.n || objectsEqualUnder(a, b, m)
	case Array:
		if m.Elem == nil {
			return true
		}
		if a.n != b.n {
			return false
		}
		x, y := a.Elems(), b.Elems()
		for i := range x {
			if !EqualUnder(x[i], y[i], m.Elem) {
				return false
			}
		}
		return true
	}
	return identical(a, b)
}

// identical reports whether two values are written the same: 1 and 1.0 are equal, but a
// policy may write them.
func identical(a, b Value) bool {
	if a.kind != b.kind || a.n != b.n {
		return false
	}
	switch a.kind {
	case Number:
		return a.Str() == b.Str()
	case Array, Set:
		return allIdentical(a.Elems(), b.Elems())
	case Object:
		return allIdentical(a.Pairs(), b.Pairs())
	}
	return Equal(a, b)
}

func allIdentical(a, b []Value) bool {
	for i := range a {
		if !identical(a[i], b[i]) {
			return false
		}
	}
	return true
}

// objectsEqualUnder compares the fields that m reads.
func objectsEqualUnder(a, b Value, m *mask.Mask) bool {
	if m.Elem == nil {
		for _, f := range m.Sorted() {
			x, y := a.Field(f.Name), b.Field(f.Name)
			if x.Defined() != y.Defined() || x.Defined() && !EqualUnder(x, y, f.Mask) {
				return false
			}
		}
		return true
	}
	x, y := a.Pairs(), b.Pairs()
	for len(x) > 0 || len(y) > 0 {
		x, y = skipUnread(x, m), skipUnread(y, m)
		if len(x) == 0 || len(y) == 0 {
			return len(x) == len(y)
		}
		if !Equal(x[0], y[0]) || !EqualUnder(x[1], y[1], m.Child(x[0].Str())) {
			return false
		}
		x, y = x[2:], y[2:]
	}
	return true
}

// skipUnread skips the fields that m does not read.
func skipUnread(pairs []Value, m *mask.Mask) []Value {
	for len(pairs) > 0 && m.Child(pairs[0].Str()) == nil {
		pairs = pairs[2:]
	}
	return pairs
}
