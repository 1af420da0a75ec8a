package completeness

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Gaps are the incomplete scopes of a snapshot, for its members and the kinds that
// policies read. Immutable.
type Gaps struct {
	snapshot *aggregate.Snapshot
	members  []string
	Kinds    []aggregate.Kind                          // of the snapshot, for policies about every kind
	byKind   *btree.Map[aggregate.Kind, []verdict.Gap] // shares what is equal with the gaps before and after
}

// FindGaps finds the incomplete scopes of the kinds, and of those of the snapshot. It
// shares what has not changed with before, which may be nil: a member may have any
// number of kinds.
func FindGaps(before *Gaps, s *aggregate.Snapshot, kinds []aggregate.Kind) *Gaps {
	g := &Gaps{snapshot: s, byKind: &btree.Map[aggregate.Kind, []verdict.Gap]{}}
	if before != nil {
		g.byKind = before.byKind.Copy()
	}
	for m := range s.Members() {
		g.members = append(g.members, m.Name)
	}
	g.Kinds = slices.Collect(s.Kinds())
	if before != nil && slices.Equal(before.Kinds, g.Kinds) {
		g.Kinds = before.Kinds
	}
	if before != nil && slices.Equal(before.members, g.members) {
		g.members = before.members
	}
	looked := make(map[aggregate.Kind]bool, len(kinds)+len(g.Kinds))
	for _, kinds := range [][]aggregate.Kind{kinds, g.Kinds} {
		for _, kind := range kinds {
			if looked[kind] {
				continue
			}
			looked[kind] = true
			found := g.find(kind)
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

func (g *Gaps) find(kind aggregate.Kind) []verdict.Gap {
	var found []verdict.Gap
	for _, m := range g.members {
		if info, _ := g.snapshot.Scope(m, kind); !info.Status.State.Complete() {
			found = append(found, verdict.Gap{Member: m, Kind: kind, State: info.Status.State})
		}
	}
	return found
}

// Of returns the gaps of a kind, by member.
func (g *Gaps) Of(kind aggregate.Kind) []verdict.Gap {
	if found, ok := g.byKind.Get(kind); ok {
		return found
	}
	return g.find(kind)
}

func (g *Gaps) At(kind aggregate.Kind, member string) (verdict.Gap, bool) {
	i, ok := slices.BinarySearchFunc(g.Of(kind), member, func(gap verdict.Gap, m string) int { return strings.Compare(gap.Member, m) })
	if !ok {
		return verdict.Gap{}, false
	}
	return g.Of(kind)[i], true
}

func (g *Gaps) Equal(o *Gaps) bool {
	if !slices.Equal(g.members, o.members) || !slices.Equal(g.Kinds, o.Kinds) || g.byKind.Len() != o.byKind.Len() {
		return false
	}
	same := true
	g.byKind.Scan(func(kind aggregate.Kind, found []verdict.Gap) bool {
		other, ok := o.byKind.Get(kind)
		same = ok && slices.Equal(found, other)
		return same
	})
	return same
}

// Synced reports whether no scope is Unknown or Syncing.
func (g *Gaps) Synced() bool {
	settled := len(g.members) > 0
	g.byKind.Scan(func(_ aggregate.Kind, found []verdict.Gap) bool {
		settled = settled && !slices.ContainsFunc(found, func(g verdict.Gap) bool { return g.State == aggregate.Unknown || g.State == aggregate.Syncing })
		return settled
	})
	return settled
}
