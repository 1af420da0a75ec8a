package access

import (
	"maps"
	"slices"
	"time"
)

// Reach is what a caller may read of one resource in one member.
type Reach struct {
	All        bool     // every namespace, and cluster-scoped objects
	Namespaces []string // sorted; where not All, only these
}

// None reports whether nothing may be read.
func (r Reach) None() bool { return !r.All && len(r.Namespaces) == 0 }

// Allows reports whether objects of a namespace may be read; "" stands for
// cluster-scoped objects.
func (r Reach) Allows(namespace string) bool {
	if r.All {
		return true
	}
	_, found := slices.BinarySearch(r.Namespaces, namespace)
	return found
}

// Grants is what one caller may read of one resource with one verb. It is
// immutable; the zero value and nil grant nothing.
type Grants struct {
	everything bool
	members    map[string]Reach
	names      []string // keys of members, sorted
	until      time.Time
}

// Everything returns grants for every member, those to come included.
func Everything(until time.Time) *Grants { return &Grants{everything: true, until: until} }

// Some returns grants for these members only. Reaches that reach nothing are
// left out; namespaces are sorted.
func Some(members map[string]Reach, until time.Time) *Grants {
	g := &Grants{members: make(map[string]Reach, len(members)), until: until}
	for name, reach := range members {
		if reach.None() {
			continue
		}
		if reach.All {
			reach.Namespaces = nil
		}
		reach.Namespaces = slices.Compact(slices.Sorted(slices.Values(reach.Namespaces)))
		g.members[name] = reach
	}
	g.names = slices.Sorted(maps.Keys(g.members))
	return g
}

// Everything reports whether every member may be read, those to come included.
func (g *Grants) Everything() bool { return g != nil && g.everything }

// Same reports whether grants give what others give, whenever they were asked for.
func (g *Grants) Same(other *Grants) bool {
	if g.None() || other.None() {
		return g.None() && other.None()
	}
	return g.everything == other.everything && maps.EqualFunc(g.members, other.members, func(a, b Reach) bool {
		return a.All == b.All && slices.Equal(a.Namespaces, b.Namespaces)
	})
}

// Until is when the grants must be asked for again, at the latest.
func (g *Grants) Until() time.Time {
	if g == nil {
		return time.Time{}
	}
	return g.until
}

// Member returns what may be read of a member.
func (g *Grants) Member(name string) Reach {
	if g == nil {
		return Reach{}
	}
	if g.everything {
		return Reach{All: true}
	}
	return g.members[name]
}

// Members returns the names of the members of which something may be read,
// sorted; nil when Everything. The slice is shared and must not be changed.
func (g *Grants) Members() []string {
	if g == nil || g.everything {
		return nil
	}
	return g.names
}

// None reports whether nothing may be read.
func (g *Grants) None() bool { return g == nil || !g.everything && len(g.members) == 0 }

// Within returns the part of the grants that is of these members, which are sorted;
// they may be none. A nil list is all members.
func (g *Grants) Within(members []string) *Grants {
	if members == nil || g == nil {
		return g
	}
	within := make(map[string]Reach, len(members))
	for _, name := range members {
		within[name] = g.Member(name)
	}
	return Some(within, g.until)
}

// Join returns what one of the grants or another gives, good until the first of them
// must be asked for again, and until latest at most.
func Join(latest time.Time, grants ...*Grants) *Grants {
	joined := map[string]Reach{}
	for _, g := range grants {
		if u := g.Until(); !u.IsZero() && u.Before(latest) {
			latest = u
		}
	}
	for _, g := range grants {
		if g.Everything() {
			return Everything(latest)
		}
		for _, name := range g.Members() {
			a, b := joined[name], g.Member(name)
			joined[name] = Reach{All: a.All || b.All, Namespaces: slices.Concat(a.Namespaces, b.Namespaces)}
		}
	}
	return Some(joined, latest)
}
