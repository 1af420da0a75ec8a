package clusterinformers

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// Resource is a kind at one version that can be listed and watched, as members
// serve it. Where they differ in its names or scope, it is as most have it.
type Resource struct {
	Kind       aggregate.Kind
	Resource   schema.GroupVersionResource
	Singular   string // "" when members do not say
	ShortNames []string
	Categories []string
	Namespaced bool
}

// Resources returns what members serve, kept or not, by kind and version, and a
// channel that is closed when it may have changed. The slice is shared and must
// not be changed.
func (m *Manager) Resources() ([]Resource, <-chan struct{}) {
	return m.catalog.resources()
}

// Heard returns when a member last said anything of a kind; the zero time when
// it has not, or is not asked.
func (m *Manager) Heard(member string, kind aggregate.Kind) time.Time {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return time.Time{}
	}
	mb.mu.Lock()
	r := mb.informers[kind]
	mb.mu.Unlock()
	if r == nil {
		return time.Time{}
	}
	if ns := r.heard.Load(); ns != 0 {
		return time.Unix(0, ns)
	}
	return time.Time{}
}

func (c *catalog) resources() ([]Resource, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served == nil {
		c.served = merge(c.offers)
	}
	return c.served, c.told
}

// merge returns one resource for each kind and version of the offers.
func merge(offers map[string]offer) []Resource {
	type key struct {
		kind    aggregate.Kind
		version string
	}
	votes := map[key]map[resource]int{}
	for _, o := range offers {
		for kind, versions := range o {
			for _, r := range versions {
				k := key{kind, r.gvr.Version}
				if votes[k] == nil {
					votes[k] = map[resource]int{}
				}
				votes[k][r]++
			}
		}
	}
	out := make([]Resource, 0, len(votes))
	for k, resources := range votes {
		most := slices.MaxFunc(slices.Collect(maps.Keys(resources)), func(a, b resource) int {
			return cmp.Or(cmp.Compare(resources[a], resources[b]), compareResources(a, b))
		})
		out = append(out, Resource{
			Kind: k.kind, Resource: most.gvr, Namespaced: most.namespaced,
			Singular: most.names.singular, ShortNames: apart(most.names.short), Categories: apart(most.names.categories),
		})
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource.Version, b.Resource.Version))
	})
	return out
}

// compareResources orders what members differ in, so that ties are decided the
// same way every time.
func compareResources(a, b resource) int {
	scope := 0
	if a.namespaced != b.namespaced {
		if scope = -1; a.namespaced {
			scope = 1
		}
	}
	return cmp.Or(scope, cmp.Compare(a.gvr.Resource, b.gvr.Resource), cmp.Compare(a.names.singular, b.names.singular),
		cmp.Compare(a.names.short, b.names.short), cmp.Compare(a.names.categories, b.names.categories))
}

// What a member calls a resource by is bounded.
const (
	maxNames = 16
	maxName  = 253
)

func together(list []string) string {
	var kept []string
	for _, name := range list[:min(len(list), maxNames)] {
		if name != "" && len(name) <= maxName && !strings.Contains(name, ",") {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, ",")
}

func apart(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
