package authz

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

	rest span

	// parts are what is granted of each resource that members serve a kind under,
	// in any member; nil where the grants are of any.
	parts map[string]*Grants
}

// Of returns the grants as those of a kind that is served under this plural only.
func (g *Grants) Of(resource string) *Grants {
	of := &Grants{parts: map[string]*Grants{resource: g}}
	if g != nil {
		of.everything, of.members, of.names, of.until = g.everything, g.members, g.names, g.until
		of.rest = g.rest
	}
	return of
}

// For returns what is granted of objects that were read under a plural: nothing
// where the grants are of others. Of "", which is not known, each member's decide.
func (g *Grants) For(resource string) *Grants {
	if g == nil || g.parts == nil || resource == "" {
		return g
	}
	return g.parts[resource]
}

// Beside returns the grants with those of earlier ones for those of the resources that
// they are not of themselves, which must be asked again when these had to be.
func (g *Grants) Beside(earlier *Grants, resources []string) *Grants {
	if g == nil || g.parts == nil {
		return g
	}
	out := *g
	out.parts = maps.Clone(g.parts)
	for _, name := range resources {
		if _, ok := out.parts[name]; !ok {
			out.parts[name] = earlier.For(name)
			if until := earlier.Until(); !until.IsZero() && until.Before(out.until) {
				out.until = until
			}
		}
	}
	return &out
}

// Knows reports whether it has been asked what is granted of a resource.
func (g *Grants) Knows(resource string) bool {
	if g == nil || g.parts == nil || resource == "" {
		return true
	}
	_, ok := g.parts[resource]
	return ok
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

// Size returns how many members and namespaces the grants name.
func (g *Grants) Size() int {
	if g == nil {
		return 0
	}
	n := len(g.members)
	for _, reach := range g.members {
		n += len(reach.Namespaces)
	}
	for _, part := range g.parts {
		if part != g {
			n += part.Size()
		}
	}
	return n
}

// Same reports whether grants give what others give, whenever they were asked for.
func (g *Grants) Same(other *Grants) bool {
	if g.None() || other.None() {
		return g.None() && other.None()
	}
	return g.everything == other.everything && maps.EqualFunc(g.members, other.members, Reach.equal) &&
		maps.EqualFunc(g.parts, other.parts, (*Grants).Same)
}

// SameIn reports whether grants give of objects that were read under a plural in a
// member what others give.
func (g *Grants) SameIn(member, resource string, other *Grants) bool {
	return g.For(resource).Member(member).equal(other.For(resource).Member(member))
}

func (r Reach) equal(other Reach) bool {
	return r.All == other.All && slices.Equal(r.Namespaces, other.Namespaces)
}

// Until is when the grants must be asked for again, at the latest.
func (g *Grants) Until() time.Time {
	if g == nil {
		return time.Time{}
	}
	return g.until
}

// Asked returns when the first of the answers that the grants rest on was asked for,
// and when the last of them was there. They are zero where nobody was asked.
func (g *Grants) Asked() (first, answered time.Time) {
	if g == nil {
		return time.Time{}, time.Time{}
	}
	return g.rest.asked, g.rest.answered
}

// span is the time of several answers: when the first of them was asked for, and when
// the last of them was there.
type span struct{ asked, answered time.Time }

// with has the span include an answer.
func (s *span) with(asked, answered time.Time) {
	if !asked.IsZero() && (s.asked.IsZero() || asked.Before(s.asked)) {
		s.asked = asked
	}
	if answered.After(s.answered) {
		s.answered = answered
	}
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

// Join returns what each of the grants gives in the members that are its, good until
// the first of them must be asked for again, and until latest at most. Of objects
// that were read under a resource its grants decide, whatever the member.
func (parts Parts) Join(latest time.Time) *Grants {
	joined := map[string]Reach{}
	of := map[string]*Grants{}
	for _, p := range parts {
		if u := p.Grants.Until(); !u.IsZero() && u.Before(latest) {
			latest = u
		}
		of[p.Resource] = p.Grants
		for _, name := range p.Members {
			joined[name] = p.Grants.Member(name)
		}
	}
	out := Some(joined, latest)
	out.parts = of
	for _, p := range parts {
		out.rest.with(p.Grants.Asked())
	}
	return out
}

// Part is what is granted of a resource.
type Part struct {
	Resource string // plural
	Members  []string
	Grants   *Grants
}

// Parts are those of a kind.
type Parts []Part
