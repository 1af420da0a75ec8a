package flat

import (
	"maps"
	"slices"
	"strings"
)

// A field of the table is a path and what is there. Keys have dots between them;
// a list's elements are behind "[]".
type field struct {
	path  string
	holds fieldType
}

// fieldType says what is at a field: one of the leaves, or a shape of which several kinds
// have one.
type fieldType struct {
	leaf   leaf
	target string // what a name is of
	shape  *shape
}

type leaf uint8

const (
	plain leaf = iota
	namespaceName
	clusterName
	objectReference
)

// namespace is the name of a namespace.
var namespace = fieldType{leaf: namespaceName, target: "Namespace"}

// clusterNameOf is the name of a cluster-scoped object of a kind.
func clusterNameOf(of string) fieldType { return fieldType{leaf: clusterName, target: of} }

// reference is an object with kind, perhaps apiVersion, apiGroup or group, name
// and perhaps namespace: the namespace follows, and the name of what has none.
var reference = fieldType{leaf: objectReference}

// shape is a type that several kinds have fields of.
type shape struct {
	name   string
	fields []field
}

func shaped(s *shape) fieldType { return fieldType{shape: s} }

// node is a place in objects of a kind; a list's elements share their list's.
type node struct {
	list bool
	leaf leaf
	in   map[string]*node
}

// add puts fields below n.
func (n *node) add(fields []field) {
	for _, f := range fields {
		at := n
		for key := range strings.SplitSeq(f.path, ".") {
			key, list := strings.CutSuffix(key, "[]")
			next := at.in[key]
			if next == nil {
				next = &node{list: list}
				if at.in == nil {
					at.in = map[string]*node{}
				}
				at.in[key] = next
			}
			at = next
		}
		at.leaf = f.holds.leaf
		if f.holds.shape != nil {
			at.add(f.holds.shape.fields)
		}
	}
}

// Row is one line of the table, as people read it.
type Row struct {
	Subject string // a kind, the name of a shape, or "" for every kind
	Field   string // a list's elements are behind "[]"
	Target  string // a kind whose names are flat, the name of a shape, or Kind
	Shape   bool   // To is the name of a shape
}

// Kind is the To of a reference that says the kind that it is of.
const Kind = "its kind"

// Table returns what follows: of every kind, of kinds, and then of the shapes that
// several have.
func Table() []Row {
	rows := rowsOf("", common)
	shapes := map[string]*shape{}
	for _, kind := range slices.Sorted(maps.Keys(table)) {
		rows = append(rows, rowsOf(string(kind), table[kind])...)
		collect(shapes, table[kind])
	}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		rows = append(rows, rowsOf(name, shapes[name].fields)...)
	}
	return rows
}

func rowsOf(of string, fields []field) []Row {
	rows := make([]Row, 0, len(fields))
	for _, f := range fields {
		to := f.holds.target
		switch {
		case f.holds.shape != nil:
			to = f.holds.shape.name
		case f.holds.leaf == objectReference:
			to = Kind
		}
		rows = append(rows, Row{of, f.path, to, f.holds.shape != nil})
	}
	return rows
}

func collect(into map[string]*shape, fields []field) {
	for _, f := range fields {
		if s := f.holds.shape; s != nil && into[s.name] == nil {
			into[s.name] = s
			collect(into, s.fields)
		}
	}
}
