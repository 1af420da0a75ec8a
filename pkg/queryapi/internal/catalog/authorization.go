package catalog

import (
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// AuthorizationResource is the resource that reads of a kind are authorized by in some
// members. Its group is the kind's.
type AuthorizationResource struct {
	Resource string   // plural
	Members  []string // nil: all
}

// discoveredResources are the resources of every kind, as members serve them until changed
// is closed.
type discoveredResources struct {
	kinds   map[aggregate.Kind][]AuthorizationResource
	changed <-chan struct{} // closed when they are outdated
}

// AuthorizationResources returns the resources that reads of a kind in a snapshot are
// authorized by: in each member the resource that its objects were read under there,
// whatever it is served as by now, so that the name that one member gives a kind affects
// neither other members nor what it held before. Where that is not known, as for members
// that hold no objects of the kind, it is the resource in the member's present discovery,
// else that of most members. For a kind that is neither held nor served there are none. The
// slice may be shared and must not be changed.
func (c *Catalog) AuthorizationResources(snapshot *aggregate.Snapshot, kind aggregate.Kind) []AuthorizationResource {
	names := snapshot.Resources(kind)
	switch len(names) {
	case 0:
		return c.discoveredResources(kind)
	case 1:
		return []AuthorizationResource{{Resource: names[0]}}
	}
	held := make([]AuthorizationResource, len(names))
	for i, name := range names {
		held[i] = AuthorizationResource{name, []string{}}
	}
	var rest []string
	offered := c.discoveredResources(kind)
	for m := range snapshot.Members() {
		resource := snapshot.Resource(m.Name, kind)
		if i := slices.IndexFunc(offered, func(o AuthorizationResource) bool { return o.servedBy(m.Name) }); resource == "" && i >= 0 {
			resource = offered[i].Resource
		}
		if i, found := slices.BinarySearch(names, resource); found {
			held[i].Members = append(held[i].Members, m.Name)
		} else {
			rest = append(rest, m.Name) // no objects of the kind: the response says how fresh that is
		}
	}
	most := slices.MaxFunc(held, func(a, b AuthorizationResource) int { return len(a.Members) - len(b.Members) })
	i, _ := slices.BinarySearch(names, most.Resource)
	held[i].Members = append(held[i].Members, rest...)
	return held
}

func (a *AuthorizationResource) servedBy(member string) bool {
	if a.Members == nil {
		return true
	}
	_, found := slices.BinarySearch(a.Members, member)
	return found
}

// discoveredResources returns the resources that members serve a kind under now.
func (c *Catalog) discoveredResources(kind aggregate.Kind) []AuthorizationResource {
	a := c.discovered.Load()
	if a == nil || isClosed(a.changed) {
		a = c.rediscover()
	}
	return a.kinds[kind]
}

func (c *Catalog) rediscover() *discoveredResources {
	served, changed := c.source.Resources()
	a := &discoveredResources{map[aggregate.Kind][]AuthorizationResource{}, changed}
	for _, s := range served {
		if !slices.ContainsFunc(a.kinds[s.Kind], func(have AuthorizationResource) bool { return have.Resource == s.Resource.Resource }) {
			a.kinds[s.Kind] = append(a.kinds[s.Kind], AuthorizationResource{s.Resource.Resource, s.Members})
		}
	}
	c.discovered.Store(a) // if two are made concurrently, either is right
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
