package catalog

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// crdKind is the kind of CustomResourceDefinitions.
const crdKind = aggregate.Kind("CustomResourceDefinition.apiextensions.k8s.io")

// ServedResource is a kind at a version under a resource as members serve it, merged over
// the fleet.
type ServedResource struct {
	Kind       aggregate.Kind
	Resource   schema.GroupVersionResource
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool

	// Members are those that serve the kind under this resource, sorted; nil if these are
	// all that serve the kind.
	Members []string
	// Shadowed says that most members serve the kind under another resource, or another kind
	// under the resource: the fleet then does not serve this one.
	Shadowed bool

	// ScopeDiffers are those of its members where the kind is namespaced although Namespaced
	// is false, or the other way round, sorted.
	ScopeDiffers []string
}

// forMember returns the resource as a member serves it: only the member decides whether its
// objects have namespaces.
func (s ServedResource) forMember(member string) ServedResource {
	if _, found := slices.BinarySearch(s.ScopeDiffers, member); found {
		s.Namespaced = !s.Namespaced
	}
	s.ScopeDiffers = nil
	return s
}

// servedBy reports whether a member that serves the kind serves it this way.
func (s *ServedResource) servedBy(member string) bool {
	if s.Members == nil {
		return true
	}
	_, found := slices.BinarySearch(s.Members, member)
	return found
}

// Source returns what members serve, and a channel that is closed when that changes.
type Source interface {
	Resources() ([]ServedResource, <-chan struct{})
}

// Catalog makes Views. See New.
type Catalog struct {
	source  Source
	seed    maphash.Seed
	current atomic.Pointer[builtView]

	mu      sync.Mutex // held while a View is built; source.Resources is called under it
	served  []ServedResource
	changed <-chan struct{}                    // closed when served is outdated
	parsed  map[aggregate.Revision]*definition // by the revision of the definition's last change
	recent  []*builtView                       // least recently used first
	known   *knownFacts

	openAPI  openAPICache
	swaggers swaggerCache

	discovered atomic.Pointer[discoveredResources]
}

// builtView is a View and what it was made from.
type builtView struct {
	view        *View
	revision    aggregate.Revision
	shape       aggregate.Revision // of the snapshot
	definitions aggregate.Revision // of their last change
	fingerprint uint64             // of the snapshot, see fingerprint
	changed     <-chan struct{}    // of the source
}

// New returns a catalog of the source's resources.
func New(source Source) *Catalog {
	return &Catalog{source: source, seed: maphash.MakeSeed()}
}

// View returns what is served as of a snapshot: a cached View, unless what members serve,
// the collected kinds, their held versions or any CustomResourceDefinition differ.
func (c *Catalog) View(snapshot *aggregate.Snapshot) *View {
	m := c.current.Load()
	if m.upToDate() && m.revision == snapshot.Revision() {
		return m.view
	}
	defs := snapshot.ChangedOf(crdKind)
	if m.upToDate() && m.shape == snapshot.Shape() && m.definitions == defs { // only other objects differ
		next := *m
		next.revision = snapshot.Revision()
		c.current.CompareAndSwap(m, &next)
		return m.view
	}
	mark := c.fingerprint(snapshot, defs)
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.current.Load(); !m.upToDate() {
		c.served, c.changed = c.source.Resources()
		c.recent = nil
	}
	m = &builtView{fingerprint: mark, changed: c.changed, revision: snapshot.Revision(), shape: snapshot.Shape(), definitions: defs}
	if i := slices.IndexFunc(c.recent, func(r *builtView) bool { return r.fingerprint == mark }); i >= 0 {
		m.view = c.recent[i].view
		c.recent = slices.Delete(c.recent, i, i+1)
	} else {
		m.view = c.buildLocked(snapshot)
	}
	c.recent = append(c.recent[max(0, len(c.recent)-maxRecent+1):], m)
	c.current.Store(m)
	return m.view
}

// maxRecent bounds the cached Views: paginated lists use older snapshots besides the newest.
const maxRecent = 4

// upToDate reports whether members still serve the same.
func (m *builtView) upToDate() bool {
	return m != nil && !isClosed(m.changed)
}

// fingerprint is a hash of what a View depends on: kinds, their scopes' versions, and
// definitions.
func (c *Catalog) fingerprint(snapshot *aggregate.Snapshot, definitions aggregate.Revision) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for scope := range snapshot.Scopes("") {
		_, _ = h.WriteString(string(scope.Kind))
		_ = h.WriteByte(0)
		_, _ = h.WriteString(scope.Version)
		if isServed(scope) {
			_ = h.WriteByte(1)
		} else {
			_ = h.WriteByte(0)
		}
	}
	maphash.WriteComparable(&h, definitions)
	return h.Sum64()
}

// isServed reports whether a scope's kind is served by its member, as far as is known.
func isServed(scope aggregate.ScopeInfo) bool {
	return scope.Status.State != aggregate.NotServed && scope.Status.State != aggregate.Unknown
}

// listAll yields all objects of a kind.
func listAll(snapshot *aggregate.Snapshot, kind aggregate.Kind) func(func(aggregate.Object) bool) {
	objects, err := snapshot.List(aggregate.Query{Kind: kind})
	if err != nil {
		panic("catalog: a query without selectors failed: " + err.Error())
	}
	return objects
}

// buildLocked builds a View. c.mu must be held.
func (c *Catalog) buildLocked(snapshot *aggregate.Snapshot) *View {
	v := &View{
		kinds: map[aggregate.Kind]*Resource{}, resources: map[schema.GroupVersionResource]*Resource{}, clusterScoped: map[schema.GroupResource]bool{},
		served: c.served, members: map[string]*View{}, catalog: c,
	}
	held := heldVersions(snapshot)
	v.heldVersions = held
	v.definitions = c.definitions(snapshot)
	for _, s := range c.served {
		version, kept := held[s.Kind]
		if !kept || s.Shadowed {
			continue
		}
		if r := newResource(s, version, v.definitions.of("", s.Kind)); r != nil {
			v.add(r)
		}
	}
	slices.SortFunc(v.sorted, compareResources)
	return v
}

// heldVersions returns the API version that each kind is held at: that of most scopes if
// members have none in common.
func heldVersions(snapshot *aggregate.Snapshot) map[aggregate.Kind]string {
	counts := map[aggregate.Kind]map[string]int{}
	for scope := range snapshot.Scopes("") {
		versions := counts[scope.Kind]
		if versions == nil {
			versions = map[string]int{}
			counts[scope.Kind] = versions
		}
		if isServed(scope) || scope.Status.State == aggregate.Unknown && scope.Version != "" {
			versions[scope.Version]++
		}
	}
	held := map[aggregate.Kind]string{}
	for kind, versions := range counts {
		best := ""
		for version, n := range versions {
			if m := versions[best]; best == "" || n > m || n == m && compareVersions(version, best) < 0 {
				best = version
			}
		}
		held[kind] = best
	}
	return held
}

func compareResources(a, b *Resource) int {
	if c := compareGroups(a.Resource.Group, b.Resource.Group); c != 0 {
		return c
	}
	if c := compareVersions(a.Resource.Version, b.Resource.Version); c != 0 {
		return c
	}
	return strings.Compare(a.Resource.Resource, b.Resource.Resource)
}
