// Package completeness tells Unknown from Known: which scopes verdicts have read, and
// which scopes of a snapshot are incomplete.
package completeness

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"federator.dev/federator/pkg/aggregate"
)

// ReadSet is what verdicts have read of which completeness matters. Most verdicts of
// a binding share one, so that a scope that turns Stale turns them all Unknown
// without touching any. Immutable but for refs.
type ReadSet struct {
	Key    string
	Own    []aggregate.Kind // of the subject's member
	All    []aggregate.Kind // of all members that are visible
	Scopes []scopeKey
	Views  []uint32 // all kinds that feed them, of all members that are visible

	Refs int // verdicts that have it; of the engine's goroutine
}

type scopeKey struct {
	Member string
	Kind   aggregate.Kind
}

// ReadSets interns classes.
type ReadSets struct {
	mu    sync.RWMutex
	byKey map[string]*ReadSet
}

// Builder collects what an evaluation reads of which completeness matters.
type Builder struct {
	own, all []aggregate.Kind
	scopes   []scopeKey
	views    []uint32
	key      []byte
}

func (r *Builder) Reset() {
	r.own, r.all, r.scopes, r.views = r.own[:0], r.all[:0], r.scopes[:0], r.views[:0]
}

func add[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// AddOwn, addWide, addPoint and addView take note of scopes that were read.
func (r *Builder) AddOwn(kind aggregate.Kind) { r.own = add(r.own, kind) }

func (r *Builder) AddAll(kind aggregate.Kind) { r.all = add(r.all, kind) }

func (r *Builder) AddView(id uint32) { r.views = add(r.views, id) }

func (r *Builder) AddScope(member string, kind aggregate.Kind) {
	r.scopes = add(r.scopes, scopeKey{Member: member, Kind: kind})
}

// Intern returns the class of a reading.
func (c *ReadSets) Intern(r *Builder) *ReadSet {
	slices.Sort(r.own)
	slices.Sort(r.all)
	slices.SortFunc(r.scopes, func(a, b scopeKey) int {
		if n := strings.Compare(a.Member, b.Member); n != 0 {
			return n
		}
		return strings.Compare(string(a.Kind), string(b.Kind))
	})
	slices.Sort(r.views)
	k := r.key[:0]
	for _, kind := range r.own {
		k = append(append(k, 'o'), kind...)
		k = append(k, 0)
	}
	for _, kind := range r.all {
		k = append(append(k, 'w'), kind...)
		k = append(k, 0)
	}
	for _, p := range r.scopes {
		k = append(append(append(append(k, 'p'), p.Member...), ' '), p.Kind...)
		k = append(k, 0)
	}
	for _, id := range r.views {
		k = binary.LittleEndian.AppendUint32(append(k, 'v'), id)
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
		Scopes: slices.Clone(r.scopes), Views: slices.Clone(r.views),
	}
	c.byKey[made.Key] = made
	return made
}

// Clear forgets all classes.
func (c *ReadSets) Clear() { c.byKey = map[string]*ReadSet{} }

// Len returns how many classes there are.
func (c *ReadSets) Len() int { return len(c.byKey) }

// ResetRefs has no verdict have any class.
func (c *ReadSets) ResetRefs() {
	for _, made := range c.byKey {
		made.Refs = 0
	}
}

// Sweep forgets classes that no verdict has.
func (c *ReadSets) Sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, made := range c.byKey {
		if made.Refs == 0 {
			delete(c.byKey, key)
		}
	}
}
