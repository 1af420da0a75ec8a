// Package access decides what a caller may read: by SubjectAccessReviews on the
// hub and, where configured, on the members.
package access

import "time"

// Reach is what a caller may read of one resource in one member.
type Reach struct {
	All        bool     // every namespace, and cluster-scoped objects
	Namespaces []string // sorted; where not All, only these
}

// Grants is what one caller may read of one resource with one verb. It is
// immutable; the zero value grants nothing.
type Grants struct {
	everything bool
	members    map[string]Reach
	until      time.Time
}

// Everything reports whether every member may be read, those to come included.
func (g *Grants) Everything() bool { return g != nil && g.everything }

// Until is when the grants must be asked for again, at the latest.
func (g *Grants) Until() time.Time { return g.until }

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

// None reports whether nothing may be read.
func (g *Grants) None() bool { return g == nil || !g.everything && len(g.members) == 0 }
