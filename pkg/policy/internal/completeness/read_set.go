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
	Wide   []aggregate.Kind // of all members that are visible
	Points []point
	Views  []uint32 // all kinds that feed them, of all members that are visible

	Refs int // verdicts that have it; of the engine's goroutine
}

type point struct {
	Member string
	Kind   aggregate.Kind
}

// ReadSets interns classes.
type ReadSets struct {
	mu    sync.RWMutex
	byKey map[string]*ReadSet
}

// Reads collects what an evaluation reads of which completeness matters.
type Reads struct {
	own, wide []aggregate.Kind
	points    []point
	views     []uint32
	key       []byte
}

func (r *Reads) Reset() {
	r.own, r.wide, r.points, r.views = r.own[:0], r.wide[:0], r.points[:0], r.views[:0]
}

func add[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// AddOwn, addWide, addPoint and addView take note of scopes that were read.
func (r *Reads) AddOwn(kind aggregate.Kind) { r.own = add(r.own, kind) }

func (r *Reads) AddWide(kind aggregate.Kind) { r.wide = add(r.wide, kind) }

func (r *Reads) AddView(id uint32) { r.views = add(r.views, id) }

func (r *Reads) AddPoint(member string, kind aggregate.Kind) {
	r.points = add(r.points, point{Member: member, Kind: kind})
}

// Intern returns the class of a reading.
func (c *ReadSets) Intern(r *Reads) *ReadSet {
	slices.Sort(r.own)
	slices.Sort(r.wide)
	slices.SortFunc(r.points, func(a, b point) int {
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
	for _, kind := range r.wide {
		k = append(append(k, 'w'), kind...)
		k = append(k, 0)
	}
	for _, p := range r.points {
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
		Key: string(k), Own: slices.Clone(r.own), Wide: slices.Clone(r.wide),
		Points: slices.Clone(r.points), Views: slices.Clone(r.views),
	}
	c.byKey[made.Key] = made
	return made
}

// Clear forgets all classes.
func (c *ReadSets) Clear() { c.byKey = map[string]*ReadSet{} }

// Len returns how many classes there are.
func (c *ReadSets) Len() int { return len(c.byKey) }

// ClearCounts has no verdict have any class.
func (c *ReadSets) ClearCounts() {
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
