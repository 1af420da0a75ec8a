package clusterinformers

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// resource is how one member serves one kind at one version.
type resource struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
	names      names
}

// names are what else a resource is called by. Lists are joined with commas:
// resources are compared.
type names struct{ singular, short, categories string }

// same reports whether two are followed alike, whatever they are called.
func (r resource) same(other resource) bool {
	return r.gvr == other.gvr && r.gvk == other.gvk && r.namespaced == other.namespaced
}

// offer is what one member serves: for each kind its versions, most preferred
// first.
type offer map[aggregate.Kind][]resource

// catalog knows what every member serves, and so which version each kind is
// held at in the whole fleet.
type catalog struct {
	fixed map[aggregate.Kind]string

	mu      sync.Mutex
	offers  map[string]offer
	tally   map[aggregate.Kind]*tally
	claims  claims
	changed chan struct{} // closed and exchanged when a held version or the set of kinds changes
	served  []Resource    // merged; nil: to be merged anew
	told    chan struct{} // closed and exchanged when served may be another
	waits   chan struct{} // one slot: a change of a held version has to wait, or another one

	kinds map[aggregate.Kind]bool // of tally, shared; nil: to be made anew
	other chan struct{}           // closed and exchanged when a kind is new or gone
}

func newCatalog(held []HeldVersion) *catalog {
	c := &catalog{
		fixed: map[aggregate.Kind]string{}, offers: map[string]offer{}, waits: make(chan struct{}, 1),
		tally: map[aggregate.Kind]*tally{}, claims: claims{}, changed: make(chan struct{}), told: make(chan struct{}),
		other: make(chan struct{}),
	}
	for _, h := range held {
		c.fixed[h.Kind] = h.Version
	}
	return c
}

// put records what a member serves; nil when it has left.
func (c *catalog) put(member string, o offer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.offers[member]
	if known == (o != nil) && maps.EqualFunc(before, o, slices.Equal) {
		return
	}
	c.served = nil
	close(c.told)
	c.told = make(chan struct{})
	if o != nil && known && maps.EqualFunc(before, o, followedAlike) {
		c.offers[member] = o
		return // at most called by other names, which a member may change as it likes
	}
	touched := map[aggregate.Kind]bool{} // whether they are new
	for kind, versions := range before {
		touched[kind] = false
		t := c.tally[kind]
		t.members--
		for _, r := range versions {
			if t.versions[r.gvr.Version]--; t.versions[r.gvr.Version] == 0 {
				delete(t.versions, r.gvr.Version)
			}
		}
	}
	for kind, versions := range o {
		t := c.tally[kind]
		if t == nil {
			t = &tally{versions: map[string]int{}}
			c.tally[kind] = t
			touched[kind] = true
		} else {
			touched[kind] = false
		}
		t.members++
		for _, r := range versions {
			t.versions[r.gvr.Version]++
		}
	}
	was := c.claims.add(before, -1)
	is := c.claims.add(o, 1)
	if o == nil {
		delete(c.offers, member)
	} else {
		c.offers[member] = o
	}
	c.settle(touched, was || is)
}

func followedAlike(a, b []resource) bool { return slices.EqualFunc(a, b, resource.same) }

// settle computes the held versions of the kinds touched, of which some are new, and
// tells everybody when one is another, or a kind is new or gone, or there is other news.
// c.mu must be held.
func (c *catalog) settle(touched map[aggregate.Kind]bool, news bool) {
	now, others := time.Now(), false
	for kind, fresh := range touched {
		others = others || fresh
		t := c.tally[kind]
		if t.members == 0 {
			delete(c.tally, kind)
			others = true
			continue
		}
		if fixed := c.fixed[kind]; fixed != "" {
			news = news || t.held != fixed
			t.held = fixed
			continue
		}
		t.wish(t.common(), fresh, now)
		news = t.fulfil(now) || fresh || news
		if t.waits {
			select {
			case c.waits <- struct{}{}:
			default:
			}
		}
	}
	if others {
		c.kinds = nil
		close(c.other)
		c.other = make(chan struct{})
	}
	if news || others {
		c.tell()
	}
}

// tell has everybody look again. c.mu must be held.
func (c *catalog) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wake tells everybody to look again.
func (c *catalog) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell()
}

// change returns a channel that is closed at the next change.
func (c *catalog) change() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// serves reports whether some member serves a kind.
func (c *catalog) serves(kind aggregate.Kind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally[kind] != nil
}

// pick returns the version that a member's scope of a kind is to be held at. A
// member that does not serve the held version gets its own preferred one, and
// condition says so. It says, too, that the resource is another kind's in the fleet.
func (c *catalog) pick(kind aggregate.Kind, versions []resource) (r resource, condition string) {
	c.mu.Lock()
	held := ""
	if t := c.tally[kind]; t != nil {
		held = t.held
	}
	gr := versions[0].gvr.GroupResource()
	fleets := c.claims.kind(gr)
	c.mu.Unlock()
	if fleets != "" && fleets != kind {
		condition = fmt.Sprintf("served as %s, which is %s in most members", gr, fleets)
	}
	for _, r := range versions {
		if r.gvr.Version == held {
			return r, condition
		}
	}
	r = versions[0]
	if held == "" {
		return r, both(condition, fmt.Sprintf("members serve no version in common: held at %s here", r.gvr.Version))
	}
	if c.fixed[kind] == "" {
		return r, both(condition, fmt.Sprintf("%s is held elsewhere but not served: held at %s here", held, r.gvr.Version))
	}
	return r, both(condition, fmt.Sprintf("%s is configured but not served: held at %s here", held, r.gvr.Version))
}

func both(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
