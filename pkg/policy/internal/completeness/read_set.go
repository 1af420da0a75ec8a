// Package completeness decides whether verdicts are Known or Unknown: it tracks which
// scopes they have read, and which scopes of a snapshot are incomplete.
package completeness

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"federator.dev/federator/pkg/aggregate"
)

// ReadSet is the scopes that verdicts have read. Most verdicts of a binding share one,
// so that a scope that turns Stale turns them all Unknown without touching any of them.
// Immutable except for Refs.
type ReadSet struct {
	Key    string
	Own    []aggregate.Kind // in the subject's member
	All    []aggregate.Kind // in all visible members
	Scopes []scopeKey
	Views  []uint32 // all kinds that contribute to them, in all visible members
	// InDoubt says that verdicts have read an instant which has passed once, and has not by a clock that was set back.
	InDoubt bool
	// External are documents from outside the fleet.
	External []Document
	// Unheld is what of this was read of by keys that this process does not have of members that are away.
	Unheld Unheld

	Refs int // verdicts that have it; belongs to the engine's goroutine
}

// Document names a document of a source, or all of them, or with neither which there are.
type Document struct {
	Source, Key string
	All         bool
}

// Unheld is what others have not told yet, as they tell of keys that are asked for only.
type Unheld struct {
	All    []aggregate.Kind // in all visible members
	Scopes []scopeKey
	Views  []uint32 // all kinds that contribute to them, in all visible members
}

// Any reports whether there is anything.
func (u *Unheld) Any() bool { return len(u.All)+len(u.Scopes)+len(u.Views) > 0 }

type scopeKey struct {
	Member string
	Kind   aggregate.Kind
}

// ReadSets interns read sets.
type ReadSets struct {
	mu    sync.RWMutex
	byKey map[string]*ReadSet
}

// Builder collects the scopes that an evaluation reads.
type Builder struct {
	own, all []aggregate.Kind
	scopes   []scopeKey
	views    []uint32
	inDoubt  bool
	external []Document
	unheld   Unheld
	key      []byte
}

func (r *Builder) Reset() {
	r.own, r.all, r.scopes, r.views, r.external, r.inDoubt = r.own[:0], r.all[:0], r.scopes[:0], r.views[:0], r.external[:0], false
	u := &r.unheld
	u.All, u.Scopes, u.Views = u.All[:0], u.Scopes[:0], u.Views[:0]
}

func add[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// AddOwn records that a kind was read in the subject's member.
func (r *Builder) AddOwn(kind aggregate.Kind) { r.own = add(r.own, kind) }

func (r *Builder) AddAll(kind aggregate.Kind) { r.all = add(r.all, kind) }

// AddDoubt records that an instant was read which is in doubt.
func (r *Builder) AddDoubt() { r.inDoubt = true }

// AddExternal records what was read of a source of documents.
func (r *Builder) AddExternal(d Document) { r.external = add(r.external, d) }

func (r *Builder) AddView(id uint32) { r.views = add(r.views, id) }

func (r *Builder) AddScope(member string, kind aggregate.Kind) {
	r.scopes = add(r.scopes, scopeKey{Member: member, Kind: kind})
}

// AddUnheldAll records that keys of a kind were read that are not held.
func (r *Builder) AddUnheldAll(kind aggregate.Kind) { r.unheld.All = add(r.unheld.All, kind) }

// AddUnheldScope records that keys of a kind were read of one member that are not held.
func (r *Builder) AddUnheldScope(member string, kind aggregate.Kind) {
	r.unheld.Scopes = add(r.unheld.Scopes, scopeKey{Member: member, Kind: kind})
}

// AddUnheldView records that keys of a view were read that are not held.
func (r *Builder) AddUnheldView(id uint32) { r.unheld.Views = add(r.unheld.Views, id) }

// appendReads appends what was read, in order.
func appendReads(k []byte, all []aggregate.Kind, scopes []scopeKey, views []uint32) []byte {
	slices.Sort(all)
	slices.SortFunc(scopes, func(a, b scopeKey) int {
		if n := strings.Compare(a.Member, b.Member); n != 0 {
			return n
		}
		return strings.Compare(string(a.Kind), string(b.Kind))
	})
	slices.Sort(views)
	for _, kind := range all {
		k = append(append(k, 'w'), kind...)
		k = append(k, 0)
	}
	for _, p := range scopes {
		k = append(append(append(append(k, 'p'), p.Member...), ' '), p.Kind...)
		k = append(k, 0)
	}
	for _, id := range views {
		k = binary.LittleEndian.AppendUint32(append(k, 'v'), id)
	}
	return k
}

func appendDocuments(k []byte, documents []Document) []byte {
	slices.SortFunc(documents, func(a, b Document) int {
		if n := strings.Compare(a.Source, b.Source); n != 0 {
			return n
		}
		if n := strings.Compare(a.Key, b.Key); n != 0 || a.All == b.All {
			return n
		}
		if a.All {
			return 1
		}
		return -1
	})
	for _, d := range documents {
		k = append(append(append(append(k, 'x'), d.Source...), 0), d.Key...)
		if k = append(k, 0); d.All {
			k = append(k, 'a')
		}
	}
	return k
}

// Intern returns the read set of what was collected.
func (c *ReadSets) Intern(r *Builder) *ReadSet {
	slices.Sort(r.own)
	k := r.key[:0]
	for _, kind := range r.own {
		k = append(append(k, 'o'), kind...)
		k = append(k, 0)
	}
	k = appendReads(k, r.all, r.scopes, r.views)
	if r.inDoubt {
		k = append(k, 'd')
	}
	k = appendDocuments(k, r.external)
	if u := &r.unheld; u.Any() {
		k = appendReads(append(k, 'u'), u.All, u.Scopes, u.Views)
	}
	r.key = k
	c.mu.RLock()
	found := c.byKey[string(k)]
	c.mu.RUnlock()
	if found != nil {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.byKey[string(k)]; found != nil {
		return found
	}
	made := &ReadSet{
		Key: string(k), Own: slices.Clone(r.own), All: slices.Clone(r.all),
		Scopes: slices.Clone(r.scopes), Views: slices.Clone(r.views), InDoubt: r.inDoubt, External: slices.Clone(r.external),
		Unheld: Unheld{All: slices.Clone(r.unheld.All), Scopes: slices.Clone(r.unheld.Scopes), Views: slices.Clone(r.unheld.Views)},
	}
	c.byKey[made.Key] = made
	return made
}

// Clear forgets all read sets.
func (c *ReadSets) Clear() { c.byKey = map[string]*ReadSet{} }

// Len returns the number of read sets.
func (c *ReadSets) Len() int { return len(c.byKey) }

// ResetRefs sets the number of verdicts of each read set to zero.
func (c *ReadSets) ResetRefs() {
	for _, made := range c.byKey {
		made.Refs = 0
	}
}

// Sweep forgets read sets that no verdict has.
func (c *ReadSets) Sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, made := range c.byKey {
		if made.Refs == 0 {
			delete(c.byKey, key)
		}
	}
}
