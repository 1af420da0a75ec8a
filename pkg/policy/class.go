package policy

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"federator.dev/federator/pkg/aggregate"
)

// class is what verdicts have read of which completeness matters. Most verdicts of
// a binding share one, so that a scope that turns Stale turns them all Unknown
// without touching any. Immutable but for refs.
type class struct {
	key    string
	own    []aggregate.Kind // of the subject's member
	wide   []aggregate.Kind // of all members that are visible
	points []point
	views  []uint32 // all kinds that feed them, of all members that are visible

	refs int // verdicts that have it; of the engine's goroutine
}

type point struct {
	member string
	kind   aggregate.Kind
}

// classes interns classes.
type classes struct {
	mu    sync.RWMutex
	byKey map[string]*class
}

// reading collects what an evaluation reads of which completeness matters.
type reading struct {
	own, wide []aggregate.Kind
	points    []point
	views     []uint32
	key       []byte
}

func (r *reading) reset() {
	r.own, r.wide, r.points, r.views = r.own[:0], r.wide[:0], r.points[:0], r.views[:0]
}

func add[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// intern returns the class of a reading.
func (c *classes) intern(r *reading) *class {
	slices.Sort(r.own)
	slices.Sort(r.wide)
	slices.SortFunc(r.points, func(a, b point) int {
		if n := strings.Compare(a.member, b.member); n != 0 {
			return n
		}
		return strings.Compare(string(a.kind), string(b.kind))
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
		k = append(append(append(append(k, 'p'), p.member...), ' '), p.kind...)
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
	made := &class{
		key: string(k), own: slices.Clone(r.own), wide: slices.Clone(r.wide),
		points: slices.Clone(r.points), views: slices.Clone(r.views),
	}
	c.byKey[made.key] = made
	return made
}

// sweep forgets classes that no verdict has.
func (c *classes) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, made := range c.byKey {
		if made.refs == 0 {
			delete(c.byKey, key)
		}
	}
}

// gaps are the incomplete scopes of a snapshot: of members that are there and the
// kinds that policies read. Immutable.
type gaps struct {
	snapshot *aggregate.Snapshot
	members  []string
	kinds    []aggregate.Kind                  // that the snapshot has, for policies of every kind
	byKind   *btree.Map[aggregate.Kind, []Gap] // shared with gaps before and after, but for what differs
}

// findGaps looks at the scopes of the kinds, and of those that the snapshot has. Former
// states are remembered, so that what has not changed since before, which may be nil, is
// shared: a member may have kinds without end.
func findGaps(before *gaps, s *aggregate.Snapshot, kinds []aggregate.Kind) *gaps {
	g := &gaps{snapshot: s, byKind: &btree.Map[aggregate.Kind, []Gap]{}}
	if before != nil {
		g.byKind = before.byKind.Copy()
	}
	for m := range s.Members() {
		g.members = append(g.members, m.Name)
	}
	g.kinds = slices.Collect(s.Kinds())
	if before != nil && slices.Equal(before.kinds, g.kinds) {
		g.kinds = before.kinds
	}
	if before != nil && slices.Equal(before.members, g.members) {
		g.members = before.members
	}
	looked := make(map[aggregate.Kind]bool, len(kinds)+len(g.kinds))
	for _, kinds := range [][]aggregate.Kind{kinds, g.kinds} {
		for _, kind := range kinds {
			if looked[kind] {
				continue
			}
			looked[kind] = true
			found := g.look(kind)
			if was, known := g.byKind.Get(kind); !known || !slices.Equal(was, found) {
				g.byKind.Set(kind, found)
			}
		}
	}
	if g.byKind.Len() > len(looked) {
		for _, kind := range g.byKind.Keys() {
			if !looked[kind] {
				g.byKind.Delete(kind)
			}
		}
	}
	return g
}

func (g *gaps) look(kind aggregate.Kind) []Gap {
	var found []Gap
	for _, m := range g.members {
		if info, _ := g.snapshot.Scope(m, kind); !info.Status.State.Complete() {
			found = append(found, Gap{Member: m, Kind: kind, State: info.Status.State})
		}
	}
	return found
}

// of returns the gaps of a kind, by member.
func (g *gaps) of(kind aggregate.Kind) []Gap {
	if found, ok := g.byKind.Get(kind); ok {
		return found
	}
	return g.look(kind)
}

func (g *gaps) at(kind aggregate.Kind, member string) (Gap, bool) {
	i, ok := slices.BinarySearchFunc(g.of(kind), member, func(gap Gap, m string) int { return strings.Compare(gap.Member, m) })
	if !ok {
		return Gap{}, false
	}
	return g.of(kind)[i], true
}

func (g *gaps) same(o *gaps) bool {
	if !slices.Equal(g.members, o.members) || !slices.Equal(g.kinds, o.kinds) || g.byKind.Len() != o.byKind.Len() {
		return false
	}
	same := true
	g.byKind.Scan(func(kind aggregate.Kind, found []Gap) bool {
		other, ok := o.byKind.Get(kind)
		same = ok && slices.Equal(found, other)
		return same
	})
	return same
}
