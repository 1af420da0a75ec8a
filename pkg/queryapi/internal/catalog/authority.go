package catalog

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// Authority is a resource by whose grants objects of a kind are read, and in which
// members.
type Authority struct {
	Resource schema.GroupResource
	Members  []string // sorted; nil: all that serve the kind
}

// authorities are those of every kind, as members served them at a moment.
type authorities struct {
	kinds   map[aggregate.Kind][]Authority
	changed <-chan struct{} // closed when they are outdated
}

// Authorities returns by which resources' grants objects of a kind are read: in
// each member by that which its own discovery names, so that what one member calls
// a kind decides nothing about what others hold. Of a kind that no member serves
// there are none. The slice is shared and must not be changed.
func (c *Catalog) Authorities(kind aggregate.Kind) []Authority {
	a := c.authorities.Load()
	if a == nil || isClosed(a.changed) {
		a = c.authorize()
	}
	return a.kinds[kind]
}

func (c *Catalog) authorize() *authorities {
	served, changed := c.source.Resources()
	a := &authorities{map[aggregate.Kind][]Authority{}, changed}
	for _, s := range served {
		gr := s.Resource.GroupResource()
		if !slices.ContainsFunc(a.kinds[s.Kind], func(have Authority) bool { return have.Resource == gr }) {
			a.kinds[s.Kind] = append(a.kinds[s.Kind], Authority{gr, s.Members})
		}
	}
	c.authorities.Store(a) // of two that are made at once either will do
	return a
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
