package fleetdoc

import (
	"cmp"
	"slices"

	"federator.dev/federator/pkg/policy/internal/value"
)

// Tree collects values below a path. V is what those who read it calculate with: the zero V
// is none.
type Tree[V any] struct {
	below  []string // the path of the root
	root   *branch[V]
	object func(names []string, values []V) V
}

type branch[V any] struct {
	leaf  V
	names []string // in order of insertion
	under map[string]*branch[V]
}

// NewTree returns a tree of Values.
func NewTree(below []string) *Tree[value.Value] {
	return NewTreeOf(below, func(names []string, values []value.Value) value.Value {
		pairs := make([]value.Value, 0, 2*len(names))
		for i, name := range names {
			pairs = append(pairs, value.Text(name), values[i])
		}
		return value.ObjectOf(pairs)
	})
}

// NewTreeOf returns a tree whose objects are made by a function, of names in order.
func NewTreeOf[V any](below []string, object func(names []string, values []V) V) *Tree[V] {
	return &Tree[V]{below: below, object: object}
}

// Put puts a value at a path, of which the tree's own path is a prefix.
func (t *Tree[V]) Put(v V, at []string) {
	if t.root == nil {
		t.root = &branch[V]{}
	}
	b := t.root
	for _, name := range at[len(t.below):] {
		next := b.under[name]
		if next == nil {
			next = &branch[V]{}
			if b.under == nil {
				b.under = map[string]*branch[V]{}
			}
			b.under[name] = next
			b.names = append(b.names, name)
		}
		b = next
	}
	b.leaf = v
}

// Empty reports whether the tree has no value.
func (t *Tree[V]) Empty() bool { return t.root == nil }

// Value returns the document: none where there is nothing at the tree's path, except that
// a section itself is an empty object then.
func (t *Tree[V]) Value() V {
	if t.root == nil {
		if len(t.below) == 0 {
			return t.object(nil, nil)
		}
		var none V
		return none
	}
	return t.value(t.root)
}

func (t *Tree[V]) value(b *branch[V]) V {
	if b.under == nil {
		return b.leaf
	}
	slices.SortFunc(b.names, cmp.Compare)
	values := make([]V, 0, len(b.names))
	for _, name := range b.names {
		values = append(values, t.value(b.under[name]))
	}
	return t.object(b.names, values)
}
