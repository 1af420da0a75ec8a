package fleetdoc

import (
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Find steps down a value, as far as a path goes.
func Find(v ast.Value, path []string) ast.Value {
	for _, step := range path {
		var t *ast.Term
		switch x := v.(type) {
		case ast.Object:
			t = x.Get(ast.StringTerm(step))
		case *ast.Array:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < x.Len() {
				t = x.Elem(i)
			}
		}
		if t == nil {
			return nil
		}
		v = t.Value
	}
	return v
}

// Tree collects values below a path.
type Tree struct {
	below []string // what the path has already stepped down
	root  *branch
}

type branch struct {
	leaf  ast.Value
	names []string // in the order they came
	under map[string]*branch
}

func NewTree(below []string) *Tree { return &Tree{below: below} }

// Put puts a value at a place, of which the tree's path is a beginning.
func (t *Tree) Put(v ast.Value, at []string) {
	if t.root == nil {
		t.root = &branch{}
	}
	b := t.root
	for _, name := range at[len(t.below):] {
		next := b.under[name]
		if next == nil {
			next = &branch{}
			if b.under == nil {
				b.under = map[string]*branch{}
			}
			b.under[name] = next
			b.names = append(b.names, name)
		}
		b = next
	}
	b.leaf = v
}

// Empty reports whether nothing was put.
func (t *Tree) Empty() bool { return t.root == nil }

// Value is what the tree holds: nil where there is nothing at its path, which is
// an empty object only at the top of a section.
func (t *Tree) Value() ast.Value {
	if t.root == nil {
		if len(t.below) == 0 {
			return ast.NewObject()
		}
		return nil
	}
	return t.root.value()
}

func (b *branch) value() ast.Value {
	if b.under == nil {
		return b.leaf
	}
	items := make([][2]*ast.Term, 0, len(b.names))
	for _, name := range b.names {
		items = append(items, ast.Item(ast.StringTerm(name), ast.NewTerm(b.under[name].value())))
	}
	return ast.NewObject(items...)
}
