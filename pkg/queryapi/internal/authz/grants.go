package authz

import (
	"maps"
	"slices"
	"time"
)

// MemberGrant is what a caller may read of one resource in one member.
type MemberGrant struct {
	All        bool     // every namespace, and cluster-scoped objects
	Namespaces []string // sorted; where not All, only these
}

// Empty reports whether nothing may be read.
func (r MemberGrant) Empty() bool { return !r.All && len(r.Namespaces) == 0 }

// Allows reports whether objects of a namespace may be read; "" is for cluster-scoped
// objects.
func (r MemberGrant) Allows(namespace string) bool {
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
	members    map[string]MemberGrant
	names      []string // keys of members, sorted
	expires    time.Time

	reviewed interval

	// resources are the grants by resource, where members serve a kind under several; nil
	// where these grants apply whatever the resource.
	resources map[string]*Grants
}

// ServedAs returns the grants as those of a kind that members serve under this plural only.
func (g *Grants) ServedAs(resource string) *Grants {
	of := &Grants{resources: map[string]*Grants{resource: g}}
	if g != nil {
		of.everything, of.members, of.names, of.expires = g.everything, g.members, g.names, g.expires
		of.reviewed = g.reviewed
	}
	return of
}

// ForResource returns the grants for objects that were read under a plural: none where the
// grants are for others. For "", which is unknown, those of each member's own resource.
func (g *Grants) ForResource(resource string) *Grants {
	if g == nil || g.resources == nil || resource == "" {
		return g
	}
	return g.resources[resource]
}

// FillFrom returns the grants together with earlier ones for those of the resources that
// they do not cover. They then expire no later than the earlier ones.
func (g *Grants) FillFrom(earlier *Grants, resources []string) *Grants {
	if g == nil || g.resources == nil {
		return g
	}
	out := *g
	out.resources = maps.Clone(g.resources)
	for _, name := range resources {
		if _, ok := out.resources[name]; !ok {
			out.resources[name] = earlier.ForResource(name)
			if until := earlier.Expires(); !until.IsZero() && until.Before(out.expires) {
				out.expires = until
			}
		}
	}
	return &out
}

// Covers reports whether the grants include a decision on a resource.
func (g *Grants) Covers(resource string) bool {
	if g == nil || g.resources == nil || resource == "" {
		return true
	}
	_, ok := g.resources[resource]
	return ok
}

// Everything returns grants for every member, also for those that join later.
func Everything(expires time.Time) *Grants { return &Grants{everything: true, expires: expires} }

// NewGrants returns grants for these members only. Empty ones are left out; namespaces
// are sorted.
func NewGrants(members map[string]MemberGrant, expires time.Time) *Grants {
	g := &Grants{members: make(map[string]MemberGrant, len(members)), expires: expires}
	for name, grant := range members {
		if grant.Empty() {
			continue
		}
		if grant.All {
			grant.Namespaces = nil
		}
		grant.Namespaces = slices.Compact(slices.Sorted(slices.Values(grant.Namespaces)))
		g.members[name] = grant
	}
	g.names = slices.Sorted(maps.Keys(g.members))
	return g
}

// Everything reports whether every member may be read, also those that join later.
func (g *Grants) Everything() bool { return g != nil && g.everything }

// Size returns how many members and namespaces the grants name.
func (g *Grants) Size() int {
	if g == nil {
		return 0
	}
	n := len(g.members)
	for _, grant := range g.members {
		n += len(grant.Namespaces)
	}
	for _, part := range g.resources {
		if part != g {
			n += part.Size()
		}
	}
	return n
}

// Equal reports whether two grants allow the same, whenever they were reviewed.
func (g *Grants) Equal(other *Grants) bool {
	if g.Empty() || other.Empty() {
		return g.Empty() && other.Empty()
	}
	return g.everything == other.everything && maps.EqualFunc(g.members, other.members, MemberGrant.equal) &&
		maps.EqualFunc(g.resources, other.resources, (*Grants).Equal)
}

// EqualIn reports whether two grants allow the same of objects that were read under a
// plural in a member.
func (g *Grants) EqualIn(member, resource string, other *Grants) bool {
	return g.ForResource(resource).Member(member).equal(other.ForResource(resource).Member(member))
}

func (r MemberGrant) equal(other MemberGrant) bool {
	return r.All == other.All && slices.Equal(r.Namespaces, other.Namespaces)
}

// Expires returns when the grants must be renewed, at the latest.
func (g *Grants) Expires() time.Time {
	if g == nil {
		return time.Time{}
	}
	return g.expires
}

// ReviewTimes returns when the first of the reviews that the grants follow from was
// requested, and when the last was decided. They are zero without reviews.
func (g *Grants) ReviewTimes() (first, last time.Time) {
	if g == nil {
		return time.Time{}, time.Time{}
	}
	return g.reviewed.start, g.reviewed.end
}

// interval is the time of several reviews: from the first request to the last decision.
type interval struct{ start, end time.Time }

// include extends the interval by a review.
func (s *interval) include(requested, decided time.Time) {
	if !requested.IsZero() && (s.start.IsZero() || requested.Before(s.start)) {
		s.start = requested
	}
	if decided.After(s.end) {
		s.end = decided
	}
}

// Member returns what may be read of a member.
func (g *Grants) Member(name string) MemberGrant {
	if g == nil {
		return MemberGrant{}
	}
	if g.everything {
		return MemberGrant{All: true}
	}
	return g.members[name]
}

// Members returns the names of the members in which something may be read,
// sorted; nil when Everything. The slice is shared and must not be changed.
func (g *Grants) Members() []string {
	if g == nil || g.everything {
		return nil
	}
	return g.names
}

// Empty reports whether nothing may be read.
func (g *Grants) Empty() bool { return g == nil || !g.everything && len(g.members) == 0 }

// Join returns the grants of a kind that members serve under several resources: in each
// member those of its own resource. They expire with the first of them, and at latest
// at the latest. Objects that were read under a resource are authorized by its grants,
// whatever the member.
func Join(resources []ResourceGrants, latest time.Time) *Grants {
	members := map[string]MemberGrant{}
	byResource := map[string]*Grants{}
	for _, r := range resources {
		if expires := r.Grants.Expires(); !expires.IsZero() && expires.Before(latest) {
			latest = expires
		}
		byResource[r.Resource] = r.Grants
		for _, name := range r.Members {
			members[name] = r.Grants.Member(name)
		}
	}
	out := NewGrants(members, latest)
	out.resources = byResource
	for _, r := range resources {
		out.reviewed.include(r.Grants.ReviewTimes())
	}
	return out
}

// ResourceGrants are the grants of one resource, and the members that serve a kind
// under it.
type ResourceGrants struct {
	Resource string // plural
	Members  []string
	Grants   *Grants
}
