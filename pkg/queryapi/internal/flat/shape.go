package flat

import "strings"

// A field of the table is a path and what is there. Keys have dots between them;
// a list's elements are behind "[]".
type field struct {
	path string
	is   is
}

// is says what is at a field: one of the leaves, or a shape of which several kinds
// have one.
type is struct {
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
var namespace = is{leaf: namespaceName, target: "Namespace"}

// name is the name of a cluster-scoped object of a kind.
func name(of string) is { return is{leaf: clusterName, target: of} }

// reference is an object with kind, perhaps apiVersion, apiGroup or group, name
// and perhaps namespace: the namespace follows, and the name of what has none.
var reference = is{leaf: objectReference}

// shape is a type that several kinds have fields of.
type shape struct {
	name   string
	fields []field
}

func a(s *shape) is { return is{shape: s} }

// node is a place in objects of a kind; a list's elements share their list's.
type node struct {
	leaf leaf
	in   map[string]*node
}

// plant puts fields below n.
func (n *node) plant(fields []field) {
	for _, f := range fields {
		at := n
		for key := range strings.SplitSeq(strings.ReplaceAll(f.path, "[]", ""), ".") {
			next := at.in[key]
			if next == nil {
				next = &node{}
				if at.in == nil {
					at.in = map[string]*node{}
				}
				at.in[key] = next
			}
			at = next
		}
		at.leaf = f.is.leaf
		if f.is.shape != nil {
			at.plant(f.is.shape.fields)
		}
	}
}
