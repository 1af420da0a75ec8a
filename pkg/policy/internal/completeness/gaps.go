package completeness

import (
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Gaps are the incomplete scopes of a snapshot, for its members and the kinds that
// policies read. Immutable.
type Gaps struct {
	snapshot *fleetview.View
	members  []string
	Kinds    []aggregate.Kind                          // of the snapshot, for policies about every kind
	byKind   *btree.Map[aggregate.Kind, []verdict.Gap] // shares what is equal with the gaps before and after
}

// FindGaps finds the incomplete scopes of the kinds, and of those of the snapshot. It
// shares what is equal with the gaps before, which may be nil.
func FindGaps(before *Gaps, s *fleetview.View, kinds []aggregate.Kind) *Gaps {
	g, looked := next(before, s, kinds, true)
	for kind := range looked {
		found := g.find(kind)
		if was, known := g.byKind.Get(kind); !known || !slices.Equal(was, found) {
			g.byKind.Set(kind, found)
		}
	}
	return g
}

// Scope names a kind of a member.
type Scope struct {
	Member string
	Kind   aggregate.Kind
}

// Update returns the gaps of a later snapshot, and whether they differ, given the scopes and
// the members that have changed, joined or left since. It costs what these are, whatever the
// fleet, but for kinds that no member had before.
func (g *Gaps) Update(s *fleetview.View, kinds []aggregate.Kind, scopes []Scope, members []string) (*Gaps, bool) {
	after, looked := next(g, s, kinds, len(members) > 0)
	changed := !slices.Equal(g.members, after.members) || !slices.Equal(g.Kinds, after.Kinds) || after.byKind.Len() != g.byKind.Len()
	touched := map[aggregate.Kind][]string{}
	for _, scope := range scopes {
		if looked[scope.Kind] {
			touched[scope.Kind] = append(touched[scope.Kind], scope.Member)
		}
	}
	for kind := range looked {
		found, known := after.byKind.Get(kind)
		if !known {
			after.byKind.Set(kind, after.find(kind))
			changed = true
			continue
		}
		if of := append(touched[kind], members...); len(of) > 0 {
			slices.Sort(of)
			if edited, some := after.edit(kind, found, slices.Compact(of)); some {
				after.byKind.Set(kind, edited)
				changed = true
			}
		}
	}
	return after, changed
}

// next returns gaps of a snapshot that have those before of the kinds that are still looked
// at, which it returns. Where members may have joined or left it lists them.
func next(before *Gaps, s *fleetview.View, kinds []aggregate.Kind, membersChanged bool) (*Gaps, map[aggregate.Kind]bool) {
	g := &Gaps{snapshot: s, byKind: &btree.Map[aggregate.Kind, []verdict.Gap]{}}
	if before != nil {
		g.byKind, g.members = before.byKind.Copy(), before.members
	}
	if before == nil || membersChanged {
		var names []string
		for m := range s.Members() {
			names = append(names, m.Name)
		}
		if !slices.Equal(names, g.members) {
			g.members = names
		}
	}
	g.Kinds = slices.Collect(s.Kinds())
	if before != nil && slices.Equal(before.Kinds, g.Kinds) {
		g.Kinds = before.Kinds
	}
	looked := make(map[aggregate.Kind]bool, len(kinds)+len(g.Kinds))
	for _, kinds := range [][]aggregate.Kind{kinds, g.Kinds} {
		for _, kind := range kinds {
			looked[kind] = true
		}
	}
	for _, kind := range g.byKind.Keys() {
		if !looked[kind] {
			g.byKind.Delete(kind)
		}
	}
	return g, looked
}

// edit returns the gaps of a kind, sorted by member, with those of some members, sorted, as
// they are in the snapshot, and whether any differs.
func (g *Gaps) edit(kind aggregate.Kind, found []verdict.Gap, members []string) ([]verdict.Gap, bool) {
	var out []verdict.Gap // nil until something differs
	from := 0             // of found, not yet in out
	for _, m := range members {
		i, had := slices.BinarySearchFunc(found[from:], m, compareGap)
		i += from
		gap, has := g.gapOf(kind, m)
		if had == has && (!has || found[i] == gap) {
			continue
		}
		if out == nil {
			out = make([]verdict.Gap, 0, len(found)+len(members))
		}
		out = append(out, found[from:i]...)
		if has {
			out = append(out, gap)
		}
		if from = i; had {
			from++
		}
	}
	if out == nil {
		return found, false
	}
	return append(out, found[from:]...), true
}

// gapOf returns the gap of a member, if it is one of the snapshot's and has one.
func (g *Gaps) gapOf(kind aggregate.Kind, member string) (verdict.Gap, bool) {
	if _, ok := slices.BinarySearch(g.members, member); !ok {
		return verdict.Gap{}, false
	}
	info, _ := g.snapshot.Scope(member, kind)
	return g.gapIn(&info)
}

// gapIn returns the gap that a scope is, if it is one.
func (g *Gaps) gapIn(s *aggregate.ScopeInfo) (verdict.Gap, bool) {
	if !g.snapshot.Known(*s) {
		return verdict.Gap{Member: s.Member, Kind: s.Kind, State: aggregate.Unknown, Reason: Untold(s)}, true
	}
	return verdict.Gap{Member: s.Member, Kind: s.Kind, State: s.Status.State, Partly: s.Status.Unread}, !s.Status.State.Complete()
}

// Why a scope is unknown that another process reads.
const (
	NotTold       = "the process that reads the member has not told of it yet"
	OtherPolicies = "the process that reads the member evaluates other policies"
)

// Untold returns why what is known of a scope of another process is not enough: what was told has the projection in its version.
func Untold(s *aggregate.ScopeInfo) string {
	if s.Version == "" {
		return NotTold
	}
	return OtherPolicies
}

// AskedFor is why a scope is not known of which a process is told what it asks for, and has asked a moment ago.
const AskedFor = "keys of it are being asked for"

// UnheldGap is the gap of a scope of which keys are not held.
func UnheldGap(member string, kind aggregate.Kind) verdict.Gap {
	return verdict.Gap{Member: member, Kind: kind, State: aggregate.Unknown, Reason: AskedFor}
}

func (g *Gaps) find(kind aggregate.Kind) []verdict.Gap {
	var found []verdict.Gap
	rest := g.members
	// Members without a scope of the kind may be known not to serve it.
	unopened := func(before func(member string) bool) {
		for len(rest) > 0 && before(rest[0]) {
			if gap, ok := g.gapOf(kind, rest[0]); ok {
				found = append(found, gap)
			}
			rest = rest[1:]
		}
	}
	for scope := range g.snapshot.ScopesOf(kind) { // by member, as the members are
		unopened(func(member string) bool { return member < scope.Member })
		if len(rest) > 0 && rest[0] == scope.Member {
			if gap, ok := g.gapIn(&scope); ok {
				found = append(found, gap)
			}
			rest = rest[1:]
		}
	}
	unopened(func(string) bool { return true })
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
	i, ok := slices.BinarySearchFunc(g.Of(kind), member, compareGap)
	if !ok {
		return verdict.Gap{}, false
	}
	return g.Of(kind)[i], true
}

// Synced reports whether no scope is waited for, but for those of some kinds.
func (g *Gaps) Synced(without map[aggregate.Kind]bool) bool {
	return len(g.members) > 0 && !g.Waits(without)
}

// Waits reports whether a scope is waited for, but for those of some kinds.
func (g *Gaps) Waits(without map[aggregate.Kind]bool) (waits bool) {
	g.byKind.Scan(func(kind aggregate.Kind, found []verdict.Gap) bool {
		waits = !without[kind] && slices.ContainsFunc(found, func(gap verdict.Gap) bool {
			return g.Awaited(gap) && g.snapshot.Matters(gap.Member, kind)
		})
		return !waits
	})
	return waits
}

// AwaitedOf yields the members, of those that a function is true of, of which a scope is waited for, but for those of some kinds.
// A kind that policies read need not have a scope in any member yet. A member may be yielded again.
func (g *Gaps) AwaitedOf(of func(member string) bool, without map[aggregate.Kind]bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		g.byKind.Scan(func(kind aggregate.Kind, found []verdict.Gap) bool {
			for _, gap := range found {
				if !without[kind] && of(gap.Member) && g.Awaited(gap) && !yield(gap.Member) {
					return false
				}
			}
			return true
		})
	}
}

// Awaited reports whether an unread scope is waited for: that of a member which has had its time to
// be read is not.
func (g *Gaps) Awaited(gap verdict.Gap) bool {
	if !gap.Unread() {
		return false
	}
	m, _ := g.snapshot.Member(gap.Member)
	return !m.GivenUp
}

func compareGap(gap verdict.Gap, member string) int { return strings.Compare(gap.Member, member) }
