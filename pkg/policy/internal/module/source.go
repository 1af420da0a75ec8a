package module

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/mask"
)

// node is where a value can come from: a place in a document, or a term or rule
// that makes a value. Values made have their members' sources as elem.
type node struct {
	up     *node
	depth  int
	loc    *ast.Location    // of the first read
	fields map[string]*node // of a place
	elem   *node            // of a place: any member
	all    bool             // it is read whole
	made   bool
	of     set // of a made value: the sources of its members
}

// set is the sources of a value. A value without any is one that was read whole
// where it was made, or a constant.
type set map[*node]bool

// Bounds of an analysis, beyond which everything counts as read.
const (
	maxPath   = 64
	maxNodes  = 20_000
	maxRounds = 50
	maxWork   = 2_000_000 // expressions looked at in one load; more is refused. The shipped policies take 18,000.
)

// child returns a place below one: of a key, or of any member when key is "".
func (a *analysis) child(n *node, key string, constant bool, loc *ast.Location) *node {
	if n.all {
		return n
	}
	if n.depth >= maxPath {
		a.whole(n)
		return n
	}
	if constant {
		c := n.fields[key]
		if c == nil {
			if n.fields == nil {
				n.fields = map[string]*node{}
			}
			c = a.place(n, loc)
			n.fields[key] = c
		}
		return c
	}
	if n.elem == nil {
		n.elem = a.place(n, loc)
	}
	return n.elem
}

func (a *analysis) place(up *node, loc *ast.Location) *node {
	a.changed = true
	if a.nodes++; a.nodes > maxNodes {
		a.lost = true
	}
	n := &node{up: up, loc: loc}
	if up != nil {
		n.depth = up.depth + 1
	}
	return n
}

// whole marks a source as read whole.
func (a *analysis) whole(n *node) {
	if n.all {
		return
	}
	n.all, a.changed = true, true
	for m := range n.of {
		a.whole(m)
	}
}

// use marks all sources as read whole.
func (a *analysis) use(s set) {
	for n := range s {
		a.whole(n)
	}
}

// touchMembers marks that the number and the keys of members are read.
func (a *analysis) touchMembers(s set, loc *ast.Location) {
	for n := range s {
		if !n.made {
			a.child(n, "", false, loc)
		}
	}
}

// join adds sources to a set that lasts.
func (a *analysis) join(to set, from set) {
	for n := range from {
		if !to[n] {
			to[n], a.changed = true, true
		}
	}
}

// give adds the sources of members to a made value.
func (a *analysis) give(n *node, members set) {
	a.join(n.of, members)
	if n.all {
		a.use(members)
	}
}

// step returns the sources below others.
func (a *analysis) step(s set, key string, constant bool, loc *ast.Location) set {
	out := set{}
	for n := range s {
		if !n.made {
			out[a.child(n, key, constant, loc)] = true
			continue
		}
		for m := range n.of {
			out[m] = true
		}
	}
	return out
}

// maxMask bounds a mask under keys where members are read as well, which would
// multiply.
const maxMask = 512

// mask is what was read of a place.
func (n *node) mask() *mask.Mask {
	if n == nil {
		return nil
	}
	if n.all {
		return mask.Whole()
	}
	m := &mask.Mask{Elem: n.elem.mask()}
	if len(n.fields) > 0 {
		m.Fields = make(map[string]*mask.Mask, len(n.fields))
	}
	for key, f := range n.fields {
		of := f.mask()
		if m.Elem != nil {
			if size(of, maxMask) <= 0 || size(m.Elem, maxMask) <= 0 {
				return mask.Whole()
			}
			of = mask.Union(of, m.Elem)
		}
		m.Fields[key] = of
	}
	return m
}

// size returns what is left of a budget after the nodes of a mask.
func size(m *mask.Mask, budget int) int {
	if m == nil || budget <= 0 {
		return budget
	}
	budget = size(m.Elem, budget-1)
	for _, f := range m.Fields {
		if budget = size(f, budget); budget <= 0 {
			break
		}
	}
	return budget
}

// below returns what was read under a key, as such or as any member.
func (n *node) below(key string) *mask.Mask { return n.mask().Child(key) }
