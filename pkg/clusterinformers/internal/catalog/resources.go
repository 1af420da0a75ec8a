package catalog

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// Resource is a kind at one version under one resource, as members serve it that
// can be listed and watched. Where these differ in its other names or its scope,
// it is as most have it.
type Resource struct {
	Kind       aggregate.Kind
	Resource   schema.GroupVersionResource
	Singular   string // "" when members do not say
	ShortNames []string
	Categories []string
	Namespaced bool

	// Members are those that serve the kind under this resource, sorted; nil
	// where all do that serve the kind. What may be read of a kind in a member
	// is granted by the resource that this member serves it under.
	Members []string
	// Shadowed says that most members serve the kind under another resource, or
	// the resource as another kind.
	Shadowed bool

	// ScopeDiffers are those of its members in which objects have namespaces where
	// Namespaced is false, and none where it is true, sorted.
	ScopeDiffers []string
}

func (c *Catalog) Resources() ([]Resource, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.merged == nil {
		c.merged, c.unanimous = merge(c.members, c.pool.sets(), c.claims)
	}
	return c.merged, c.mergedChanged
}

func (c *Catalog) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = make(map[aggregate.Kind]bool, len(c.tallies))
		for kind := range c.tallies {
			c.kinds[kind] = true
		}
	}
	return c.kinds, c.kindsChanged
}

// merge returns one resource for each kind, version and plural that members serve. sets are what
// they serve, each with its number of members: few, as most serve the same. unanimous says that no
// two members contradict each other, so that it does not matter how many serve what.
func merge(discovered map[string]APIResources, sets iter.Seq2[APIResources, int], claims claims) (out []Resource, unanimous bool) {
	type key struct {
		kind     aggregate.Kind
		resource schema.GroupVersionResource
	}
	votes := map[key]map[APIResource]int{}
	resources := map[aggregate.Kind]map[schema.GroupResource]int{} // in one member a kind has one; members may contradict each other
	for kinds, members := range sets {
		for kind, versions := range kinds {
			if resources[kind] == nil {
				resources[kind] = map[schema.GroupResource]int{}
			}
			resources[kind][versions[0].GVR.GroupResource()] += members
			for _, r := range versions {
				k := key{kind, r.GVR}
				if votes[k] == nil {
					votes[k] = map[APIResource]int{}
				}
				votes[k][r] += members
			}
		}
	}
	out, unanimous = make([]Resource, 0, len(votes)), true
	for k, counts := range votes {
		common := slices.MaxFunc(slices.Collect(maps.Keys(counts)), func(a, b APIResource) int {
			return cmp.Or(cmp.Compare(counts[a], counts[b]), compareResources(a, b))
		})
		gr := k.resource.GroupResource()
		var members []string
		shadowed := claims.kind(gr) != k.kind
		if of := resources[k.kind]; len(of) > 1 {
			members = membersOf(discovered, func(o APIResources) bool {
				versions := o[k.kind]
				return len(versions) > 0 && versions[0].GVR.GroupResource() == gr
			})
			shadowed = shadowed || majority(of) != gr
		}
		unanimous = unanimous && len(counts) == 1 && len(resources[k.kind]) == 1 && !shadowed
		out = append(out, Resource{
			Kind: k.kind, Resource: k.resource, Namespaced: common.Namespaced,
			Singular: common.names.singular, ShortNames: splitNames(common.names.short), Categories: splitNames(common.names.categories),
			Members: members, Shadowed: shadowed, ScopeDiffers: minority(discovered, k.kind, k.resource, common.Namespaced, counts),
		})
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource.Version, b.Resource.Version), cmp.Compare(a.Resource.Resource, b.Resource.Resource))
	})
	return out, unanimous
}

// minority returns the members that differ from the majority in whether a
// kind's objects have namespaces, where any does.
func minority(discovered map[string]APIResources, kind aggregate.Kind, gvr schema.GroupVersionResource, namespaced bool, counts map[APIResource]int) []string {
	agreed := true
	for r := range counts {
		agreed = agreed && r.Namespaced == namespaced
	}
	if agreed {
		return nil
	}
	return membersOf(discovered, func(o APIResources) bool {
		return slices.ContainsFunc(o[kind], func(r APIResource) bool { return r.GVR == gvr && r.Namespaced != namespaced })
	})
}

// membersOf returns the members that serve what is asked for, sorted; nil for none.
func membersOf(discovered map[string]APIResources, serves func(APIResources) bool) []string {
	var out []string
	for member, o := range discovered {
		if serves(o) {
			out = append(out, member)
		}
	}
	slices.Sort(out)
	return out
}

// majority returns the resource that most members serve a kind under.
func majority(of map[schema.GroupResource]int) schema.GroupResource {
	return slices.MaxFunc(slices.Collect(maps.Keys(of)), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(of[a], of[b]), cmp.Compare(b.Resource, a.Resource))
	})
}

// claims counts the members that serve a kind under a resource.
type claims map[schema.GroupResource]map[aggregate.Kind]int

// add reports whether one of the resources is contested, before or after.
func (c claims) add(o APIResources, n int) (contested bool) {
	for kind, versions := range o {
		gr := versions[0].GVR.GroupResource()
		if c[gr] == nil {
			c[gr] = map[aggregate.Kind]int{}
		}
		contested = contested || len(c[gr]) > 1
		if c[gr][kind] += n; c[gr][kind] == 0 {
			delete(c[gr], kind)
		}
		contested = contested || len(c[gr]) > 1
		if len(c[gr]) == 0 {
			delete(c, gr)
		}
	}
	return contested
}

// kind returns the fleet's kind of a resource: that of most members. That does not
// decide by whose grants objects are read, only which of two kinds has the path
// below /fleet.
func (c claims) kind(gr schema.GroupResource) aggregate.Kind {
	kinds := c[gr]
	best := aggregate.Kind("")
	for kind, n := range kinds {
		if best == "" || n > kinds[best] || n == kinds[best] && kind < best {
			best = kind
		}
	}
	return best
}

// compareResources orders what members differ in, so that ties are decided the
// same way every time.
func compareResources(a, b APIResource) int {
	scope := 0
	if a.Namespaced != b.Namespaced {
		if scope = -1; a.Namespaced {
			scope = 1
		}
	}
	return cmp.Or(scope, cmp.Compare(a.GVR.Resource, b.GVR.Resource), cmp.Compare(a.names.singular, b.names.singular),
		cmp.Compare(a.names.short, b.names.short), cmp.Compare(a.names.categories, b.names.categories))
}
