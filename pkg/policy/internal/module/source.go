package module

import (
	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/mask"
)

// source is where a value can come from: a location in a document, or a term or rule
// that constructs a value. A constructed value has the sources of its members.
type source struct {
	parent  *source
	depth   int
	loc     *ast.Location      // of the first read
	fields  map[string]*source // of a place
	elem    *source            // of a place: any member
	whole   bool               // it is read whole
	made    bool
	members sources // of a made value: the sources of its members
}

// sources are those of a value. A value without any was read whole where it was
// constructed, or is a constant.
type sources map[*source]bool

// Bounds of an analysis, beyond which everything counts as read.
const (
	maxPath   = 64
	maxNodes  = 20_000
	maxPasses = 50
	maxWork   = 2_000_000 // expressions evaluated in one load; more is refused. The shipped policies need 18,000.
)

// child returns a location below one: of a key, or of any member when key is not
// constant.
func (a *analysis) child(n *source, key string, constant bool, loc *ast.Location) *source {
	if n.whole {
		return n
	}
	if n.depth >= maxPath {
		a.markWhole(n)
		return n
	}
	if constant {
		c := n.fields[key]
		if c == nil {
			if n.fields == nil {
				n.fields = map[string]*source{}
			}
			c = a.newPlace(n, loc)
			n.fields[key] = c
		}
		return c
	}
	if n.elem == nil {
		n.elem = a.newPlace(n, loc)
	}
	return n.elem
}

func (a *analysis) newPlace(up *source, loc *ast.Location) *source {
	a.changed = true
	if a.nodes++; a.nodes > maxNodes {
		a.gaveUp = true
	}
	n := &source{parent: up, loc: loc}
	if up != nil {
		n.depth = up.depth + 1
	}
	return n
}

// markWhole marks a source as read whole.
func (a *analysis) markWhole(n *source) {
	if n.whole {
		return
	}
	n.whole, a.changed = true, true
	for m := range n.members {
		a.markWhole(m)
	}
}

// markAllWhole marks all sources as read whole.
func (a *analysis) markAllWhole(s sources) {
	for n := range s {
		a.markWhole(n)
	}
}

// readKeys marks that the number and the keys of members are read.
func (a *analysis) readKeys(s sources, loc *ast.Location) {
	for n := range s {
		if !n.made {
			a.child(n, "", false, loc)
		}
	}
}

// join adds sources to a set.
func (a *analysis) join(to sources, from sources) {
	for n := range from {
		if !to[n] {
			to[n], a.changed = true, true
		}
	}
}

// addMembers adds the sources of members to a constructed value.
func (a *analysis) addMembers(n *source, members sources) {
	a.join(n.members, members)
	if n.whole {
		a.markAllWhole(members)
	}
}

// step returns the sources one step below others.
func (a *analysis) step(s sources, key string, constant bool, loc *ast.Location) sources {
	out := sources{}
	for n := range s {
		if !n.made {
			out[a.child(n, key, constant, loc)] = true
			continue
		}
		for m := range n.members {
			out[m] = true
		}
	}
	return out
}

// maxMask bounds a mask under keys where members are read as well, which would
// multiply.
const maxMask = 512

// mask is what was read of a source.
func (n *source) mask() *mask.Mask {
	if n == nil {
		return nil
	}
	if n.whole {
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
func (n *source) below(key string) *mask.Mask { return n.mask().Child(key) }
