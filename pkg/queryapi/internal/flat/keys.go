package flat

import (
	"sync"

	"federator.dev/federator/pkg/aggregate"
)

// ScopeFunc reports whether objects of a kind have namespaces, if that is known. It is
// called from any goroutine, with kinds that members name.
type ScopeFunc func(kind aggregate.Kind) (namespaced, known bool)

// Keys are the flat keys of one kind's objects. It is immutable, and safe from any
// goroutine.
type Keys struct {
	namespaced bool
	root       *node
	scope      ScopeFunc
}

// NewKeys returns the keys of a kind, whose objects have namespaces or not. scope is for the
// kinds of owners and other references: names of a kind that is unknown to it, and not one
// of Kubernetes' own, are not rewritten.
func NewKeys(kind aggregate.Kind, namespaced bool, scope ScopeFunc) *Keys {
	t := compiledTable()
	own := t.kinds[kind]
	if own == nil {
		own = t.others
	}
	return &Keys{namespaced: namespaced, root: own, scope: scope}
}

// ForNamespace returns the keys of an object in a namespace, "" for none: where members
// differ in whether a kind has namespaces, each object is treated as in its own member.
func (k *Keys) ForNamespace(namespace string) *Keys {
	if k.namespaced == (namespace != "") {
		return k
	}
	other := *k
	other.namespaced = !k.namespaced
	return &other
}

// compiledTable is the table as trees.
var compiledTable = sync.OnceValue(func() (t struct {
	kinds  map[aggregate.Kind]*node
	others *node // for kinds that are not in the table
},
) {
	t.others = &node{}
	t.others.add(commonFields)
	t.kinds = make(map[aggregate.Kind]*node, len(table))
	for kind, fields := range table {
		n := &node{}
		n.add(commonFields)
		n.add(fields)
		t.kinds[kind] = n
	}
	return t
})

// ClusterScoped reports whether objects of a kind are known to have no namespaces,
// so that their names are flat.
func (k *Keys) ClusterScoped(kind aggregate.Kind) bool {
	if clusterScoped[string(kind)] {
		return true
	}
	namespaced, known := k.scope(kind)
	return known && !namespaced
}

// FieldType is the type of a field's content.
type FieldType uint8

// The types: content that is not rewritten (Plain), the name of a namespace or of a
// cluster-scoped object, both flat, or (ByKind) a name that is flat if the kind next to it
// has no namespaces.
const (
	Plain FieldType = iota
	Namespace
	ClusterName
	ByKind
)

// Field returns the type of a field. The path is of keys, without the indices of lists, as
// in field selectors.
func (k *Keys) Field(path ...string) FieldType {
	if len(path) == 2 && path[0] == "metadata" {
		switch {
		case path[1] == "namespace" && k.namespaced:
			return Namespace
		case path[1] == "name" && !k.namespaced:
			return ClusterName
		}
	}
	n := k.root
	for i, key := range path {
		if n = n.in[key]; n == nil {
			return Plain
		}
		if n.leaf == objectReference {
			switch rest := path[i+1:]; {
			case len(rest) == 1 && rest[0] == "namespace":
				return Namespace
			case len(rest) == 1 && (rest[0] == "name" || rest[0] == "uid"):
				return ByKind
			}
			return Plain
		}
	}
	switch n.leaf {
	case namespaceName:
		return Namespace
	case clusterName:
		return ClusterName
	}
	return Plain
}
