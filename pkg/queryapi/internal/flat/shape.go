package flat

import (
	"maps"
	"slices"
	"strings"
)

// A field of the table is a path and its type. Keys are separated by dots; "[]" is the
// elements of a list.
type field struct {
	path  string
	holds fieldType
}

// fieldType is the type of a field: a leaf, or a shape that several kinds have.
type fieldType struct {
	leaf   leaf
	target string // the kind that a name is of
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

// reference is an object with kind, optionally apiVersion, apiGroup or group, name and
// optionally namespace: the namespace is rewritten, or the name if the kind has no
// namespaces.
var reference = fieldType{leaf: objectReference}

// shape is a type of fields of several kinds.
type shape struct {
	name   string
	fields []field
}

func nested(s *shape) fieldType { return fieldType{shape: s} }

// node is a path in objects of a kind; a list's elements share the node of their list.
type node struct {
	list bool
	leaf leaf
	in   map[string]*node
}

// add adds fields below n.
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

// Row is one line of the table, for documentation.
type Row struct {
	Subject string // a kind, the name of a shape, or "" for every kind
	Field   string // "[]" is the elements of a list
	Target  string // a kind whose names are flat, the name of a shape, or Kind
	Shape   bool   // Target is the name of a shape
}

// Kind is the Target of a reference that contains its kind.
const Kind = "its kind"

// Table returns the fields that are rewritten: those of every kind, of individual kinds, and
// of the shapes that several kinds have.
func Table() []Row {
	rows := rowsOf("", commonFields)
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
