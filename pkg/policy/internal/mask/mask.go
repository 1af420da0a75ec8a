// Package mask describes the parts of an object that a policy can read.
package mask

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Mask is a set of paths into a JSON value. A nil Mask reads nothing, not even
// whether the value is there; an empty one reads that it is, its type, and the
// whole of a scalar. All reads everything below. Elem stands for every element
// of an array and every value of an object that Fields does not name.
//
// A published Mask is immutable and may be shared.
type Mask struct {
	All    bool
	Fields map[string]*Mask
	Elem   *Mask

	sorted atomic.Pointer[[]Field] // what Sorted has returned: masks are compared by Equal
}

// Whole returns the mask that reads everything.
func Whole() *Mask { return &Mask{All: true} }

// Child returns what m reads of the value under a key of an object.
func (m *Mask) Child(key string) *Mask {
	switch {
	case m == nil || m.All:
		return m
	case m.Fields != nil:
		if c, ok := m.Fields[key]; ok {
			return c
		}
	}
	return m.Elem
}

// Element returns what m reads of each element of an array.
func (m *Mask) Element() *Mask {
	if m == nil || m.All {
		return m
	}
	return m.Elem
}

// At returns what m reads below a path of keys; "*" stands for any element.
func (m *Mask) At(path ...string) *Mask {
	for _, key := range path {
		if key == "*" {
			m = m.Element()
		} else {
			m = m.Child(key)
		}
	}
	return m
}

// Path returns the mask that reads what last reads below a path of keys, where
// "*" stands for any element.
func Path(last *Mask, path ...string) *Mask {
	for _, key := range slices.Backward(path) {
		if key == "*" {
			last = &Mask{Elem: last}
		} else {
			last = &Mask{Fields: map[string]*Mask{key: last}}
		}
	}
	return last
}

// Union returns the mask that reads what any of the masks reads.
func Union(masks ...*Mask) *Mask {
	var u *Mask
	for _, m := range masks {
		u = union(u, m)
	}
	return u
}

func union(a, b *Mask) *Mask {
	switch {
	case a == nil || a == b:
		return b
	case b == nil || a.All:
		return a
	case b.All:
		return b
	}
	u := &Mask{Elem: union(a.Elem, b.Elem)}
	if n := len(a.Fields) + len(b.Fields); n > 0 {
		u.Fields = make(map[string]*Mask, n)
	}
	for key := range a.Fields {
		u.Fields[key] = union(a.Child(key), b.Child(key))
	}
	for key := range b.Fields {
		u.Fields[key] = union(a.Child(key), b.Child(key))
	}
	return u
}

// Covers reports whether m reads everything that other reads.
func (m *Mask) Covers(other *Mask) bool {
	switch {
	case other == nil:
		return true
	case m == nil:
		return false
	case m.All || m == other:
		return true
	case other.All:
		return false
	}
	if !m.Elem.Covers(other.Elem) {
		return false
	}
	for key := range other.Fields {
		if !m.Child(key).Covers(other.Child(key)) {
			return false
		}
	}
	for key := range m.Fields {
		if !m.Child(key).Covers(other.Child(key)) {
			return false
		}
	}
	return true
}

// Equal reports whether both read the same.
func (m *Mask) Equal(other *Mask) bool { return m.Covers(other) && other.Covers(m) }

// String writes the mask for messages, one path a piece: "metadata.name,
// spec.containers[].image.**", where ** is everything below. A nil Mask is
// "nothing".
func (m *Mask) String() string {
	if m == nil {
		return "nothing"
	}
	return strings.Join(m.paths("", nil), ", ")
}

func (m *Mask) paths(prefix string, to []string) []string {
	if m == nil {
		return to
	}
	if m.All {
		return append(to, strings.TrimPrefix(prefix+".**", "."))
	}
	if len(m.Fields) == 0 && m.Elem == nil {
		if prefix == "" {
			prefix = "."
		}
		return append(to, prefix)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Fields)) {
		to = m.Fields[key].paths(join(prefix, key), to)
	}
	return m.Elem.paths(prefix+"[]", to)
}

func join(prefix, key string) string {
	switch {
	case key == "" || strings.ContainsAny(key, ".[]*, \"/"):
		return prefix + "[" + strconv.Quote(key) + "]"
	case prefix == "":
		return key
	}
	return prefix + "." + key
}
