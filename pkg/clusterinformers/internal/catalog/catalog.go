// Package catalog knows what every member serves, and so at which version the fleet holds
// each kind.
package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
)

// Catalog knows what every member serves, and so which version each kind is
// held at in the whole fleet.
type Catalog struct {
	fixed map[aggregate.Kind]string

	mu            sync.Mutex
	members       map[string]APIResources // shared in pool
	pool          pool
	tallies       map[aggregate.Kind]*tally
	claims        claims
	changed       chan struct{}   // closed and exchanged when a held version or the set of kinds changes
	merged        []Resource      // merged; nil: to be merged again
	unanimous     bool            // merged does not depend on how many members serve what
	mergedChanged chan struct{}   // closed and exchanged when served may be another
	pending       trigger.Trigger // a change of a held version has to wait, or another one

	kinds        map[aggregate.Kind]bool // of tally, shared; nil: to be made again
	kindsChanged chan struct{}           // closed and exchanged when a kind is new or gone
}

// New returns a catalog without members. held are the configured versions of
// kinds.
func New(held map[aggregate.Kind]string) *Catalog {
	return &Catalog{
		fixed: held, members: map[string]APIResources{}, pool: newPool(), pending: trigger.New(),
		tallies: map[aggregate.Kind]*tally{}, claims: claims{}, changed: make(chan struct{}), mergedChanged: make(chan struct{}),
		kindsChanged: make(chan struct{}),
	}
}

// Set records what a member serves; nil when it has left. It returns what equals that and is
// shared with other members, which must not be changed.
func (c *Catalog) Set(member string, o APIResources) APIResources {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.members[member]
	if known == (o != nil) && equal(before, o) {
		return before
	}
	first, last := false, false
	if o != nil {
		o, first = c.pool.acquire(o)
		c.members[member] = o
	} else {
		delete(c.members, member)
	}
	if known {
		last = c.pool.release(before)
	}
	if first || last || !c.unanimous {
		c.merged = nil
		close(c.mergedChanged)
		c.mergedChanged = make(chan struct{})
	}
	if o != nil && known && maps.EqualFunc(before, o, allSame) {
		return o // at most called by other names, which a member may change as it likes
	}
	touched := map[aggregate.Kind]bool{} // whether they are new
	for kind, versions := range before {
		touched[kind] = false
		t := c.tallies[kind]
		t.members--
		for _, r := range versions {
			if t.versions[r.GVR.Version]--; t.versions[r.GVR.Version] == 0 {
				delete(t.versions, r.GVR.Version)
			}
		}
	}
	for kind, versions := range o {
		t := c.tallies[kind]
		if t == nil {
			t = &tally{versions: map[string]int{}}
			c.tallies[kind] = t
			touched[kind] = true
		} else {
			touched[kind] = false
		}
		t.members++
		for _, r := range versions {
			t.versions[r.GVR.Version]++
		}
	}
	was := c.claims.add(before, -1)
	is := c.claims.add(o, 1)
	c.updateHeldLocked(touched, was || is)
	return o
}

func allSame(a, b []APIResource) bool { return slices.EqualFunc(a, b, APIResource.Same) }

// updateHeldLocked computes the held versions of the kinds touched, of which some are new, and
// notifies when one has changed, or a kind is new or gone, or something else has changed.
// c.mu must be held.
func (c *Catalog) updateHeldLocked(touched map[aggregate.Kind]bool, news bool) {
	now, others := time.Now(), false
	for kind, fresh := range touched {
		others = others || fresh
		t := c.tallies[kind]
		if t.members == 0 {
			delete(c.tallies, kind)
			others = true
			continue
		}
		if fixed := c.fixed[kind]; fixed != "" {
			news = news || t.held != fixed
			t.held = fixed
			continue
		}
		t.propose(t.common(), fresh, now)
		news = t.apply(now) || fresh || news
		if t.pending {
			c.pending.Fire()
		}
	}
	if others {
		c.kinds = nil
		close(c.kindsChanged)
		c.kindsChanged = make(chan struct{})
	}
	if news || others {
		c.notifyLocked()
	}
}

// notifyLocked has everybody look again. c.mu must be held.
func (c *Catalog) notifyLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Notify wakes everyone who waits for a change.
func (c *Catalog) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notifyLocked()
}

// Changed returns a channel that is closed at the next change.
func (c *Catalog) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Serves reports whether some member serves a kind.
func (c *Catalog) Serves(kind aggregate.Kind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tallies[kind] != nil
}

// Select returns the version that a member's scope of a kind is to be held at. A
// member that does not serve the held version gets its own preferred one, and
// condition says so. It says, too, that the resource is another kind's in the fleet.
func (c *Catalog) Select(kind aggregate.Kind, versions []APIResource) (r APIResource, condition string) {
	c.mu.Lock()
	held := ""
	if t := c.tallies[kind]; t != nil {
		held = t.held
	}
	gr := versions[0].GVR.GroupResource()
	fleets := c.claims.kind(gr)
	c.mu.Unlock()
	if fleets != "" && fleets != kind {
		condition = fmt.Sprintf("served as %s, which is %s in most members", gr, fleets)
	}
	for _, r := range versions {
		if r.GVR.Version == held {
			return r, condition
		}
	}
	r = versions[0]
	if held == "" {
		return r, joinNotes(condition, fmt.Sprintf("members serve no version in common: held at %s here", r.GVR.Version))
	}
	if c.fixed[kind] == "" {
		return r, joinNotes(condition, fmt.Sprintf("%s is held elsewhere but not served: held at %s here", held, r.GVR.Version))
	}
	return r, joinNotes(condition, fmt.Sprintf("%s is configured but not served: held at %s here", held, r.GVR.Version))
}

func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// ErrNotServed is returned for a kind that a member does not serve, or not at that
// version.
var ErrNotServed = errors.New("member does not serve the kind")

// Find returns what a member serves of a kind at a version, or at the held one.
func (c *Catalog) Find(member string, kind aggregate.Kind, apiVersion string) (APIResource, error) {
	c.mu.Lock()
	versions := c.members[member][kind]
	c.mu.Unlock()
	if len(versions) == 0 {
		return APIResource{}, fmt.Errorf("%w: %s", ErrNotServed, kind)
	}
	if apiVersion == "" {
		r, _ := c.Select(kind, versions)
		return r, nil
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return APIResource{}, fmt.Errorf("apiVersion %q: %w", apiVersion, err)
	}
	for _, r := range versions {
		if r.GVR.GroupVersion() == gv {
			return r, nil
		}
	}
	return APIResource{}, fmt.Errorf("%w: %s at %s", ErrNotServed, kind, apiVersion)
}
