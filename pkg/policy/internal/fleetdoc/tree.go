package fleetdoc

import (
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Find returns the value at a path below a value, or nil.
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
	below []string // the path of the root
	root  *branch
}

type branch struct {
	leaf  ast.Value
	names []string // in order of insertion
	under map[string]*branch
}

func NewTree(below []string) *Tree { return &Tree{below: below} }

// Put puts a value at a path, of which the tree's own path is a prefix.
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

// Empty reports whether the tree has no value.
func (t *Tree) Empty() bool { return t.root == nil }

// Value returns the document: nil where there is nothing at the tree's path, except that
// a section itself is an empty object then.
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
