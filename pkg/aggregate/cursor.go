package aggregate

import (
	"context"
	"iter"
	"slices"
	"strings"
)

// Delta is the net change of one ref between two snapshots: without Before it
// was added, without After deleted. An object whose UID changed is two deltas,
// a delete and an add.
type Delta struct {
	Ref           Ref
	Before, After Object
}

// ScopeDelta is the net change of one scope apart from its objects: its status, version or
// resource. A scope that did or does not exist is Unknown.
type ScopeDelta struct{ Before, After ScopeInfo }

// MemberDelta is the net change of what is known of one member: without Before
// it joined, without After it left.
type MemberDelta struct{ Before, After *Member }

// Cursor reads the changes of the index. It keeps one snapshot, so a slow reader costs the
// objects that changed since, however often they did. A cursor belongs to one goroutine.
type Cursor struct {
	index *Index
	last  *Snapshot
}

// Cursor returns a cursor that starts at a snapshot, or at the empty index
// when from is nil.
func (x *Index) Cursor(from *Snapshot) *Cursor {
	if from == nil {
		from = &Snapshot{
			revision: x.First(), fields: x.fields, pivots: x.pivots,
			scopes: newTree(lessScope), members: newTree(lessMember), plurals: newTree(lessPlurals),
		}
	}
	return &Cursor{index: x, last: from}
}

// Next waits until something changed and returns what did. Its only error is
// the context's.
func (c *Cursor) Next(ctx context.Context) (*Batch, error) {
	for {
		if b, ok := c.Poll(); ok {
			return b, nil
		}
		select {
		case <-c.index.Newer(c.last):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Poll returns what changed since the last call, and false when nothing did.
func (c *Cursor) Poll() (*Batch, bool) {
	p := c.index.current.Load()
	if p.snapshot.revision == c.last.revision {
		return nil, false
	}
	b := &Batch{Before: c.last, After: p.snapshot}
	b.touched, b.exact = touchedSince(p, c.last.revision)
	c.last = p.snapshot
	return b, true
}

// Batch is what changed between two snapshots. It may be read any number of
// times, by any number of goroutines.
type Batch struct {
	Before, After *Snapshot

	// exact says that touched has every scope that changed, which is the case unless the
	// change log was too short.
	exact   bool
	touched []touchedScope
}

// Still returns a batch in which nothing has changed.
func (s *Snapshot) Still() *Batch { return &Batch{Before: s, After: s, exact: true} }

// touchedScope is a scope that changed: the keys that changed, or all if they must be found
// by comparing its roots.
type touchedScope struct {
	key  scopeKey
	all  bool
	keys []*identity
}

func touchedSince(p *published, rev Revision) ([]touchedScope, bool) {
	from, ok := p.log.since(rev, p.snapshot.revision)
	if !ok {
		return nil, false
	}
	scopes := map[scopeKey]*touchedScope{}
	at := func(id *scopeID) *touchedScope {
		k := scopeKey{id.member, id.kind}
		if scopes[k] == nil {
			scopes[k] = &touchedScope{key: k}
		}
		return scopes[k]
	}
	for i := from; i < p.log.end; i++ {
		r := p.log.at(i)
		for _, b := range r.bulk {
			at(b.scope()).all = true
		}
		if r.scope == nil {
			continue
		}
		t := at(r.scope)
		t.all = t.all || r.cut
		for _, c := range r.changes {
			if c.after != nil {
				t.keys = append(t.keys, c.after.identity)
			} else {
				t.keys = append(t.keys, c.before.identity)
			}
		}
	}
	out := make([]touchedScope, 0, len(scopes))
	for _, t := range scopes {
		slices.SortFunc(t.keys, compareKeys)
		t.keys = slices.CompactFunc(t.keys, func(a, b *identity) bool { return compareKeys(a, b) == 0 })
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b touchedScope) int {
		if c := strings.Compare(string(a.key.kind), string(b.key.kind)); c != 0 {
			return c
		}
		return strings.Compare(a.key.member, b.key.member)
	})
	return out, true
}

// roots yields the roots, before and after, of every scope that may differ.
func (b *Batch) roots() iter.Seq2[touchedScope, scopeChange] {
	return func(yield func(touchedScope, scopeChange) bool) {
		if b.exact {
			for _, t := range b.touched {
				var c scopeChange
				c.before, _ = b.Before.scopes.Get(pivotScope(t.key.member, t.key.kind))
				c.after, _ = b.After.scopes.Get(pivotScope(t.key.member, t.key.kind))
				if c.before != c.after && !yield(t, c) {
					return
				}
			}
			return
		}
		diffOrdered(b.Before.scopes, b.After.scopes, lessScope, func(before, after *scopeRoot) bool {
			return yield(touchedScope{all: true}, scopeChange{before, after})
		})
	}
}

// Deltas yields the objects that changed, by kind, member, namespace and name. Bulk commits
// are compared during iteration, so a join costs no memory here.
func (b *Batch) Deltas() iter.Seq[Delta] { return b.DeltasOf(nil) }

// DeltasOf is Deltas of some kinds alone; nil means all. What it does not yield costs no
// comparison.
func (b *Batch) DeltasOf(kinds map[Kind]bool) iter.Seq[Delta] {
	return func(yield func(Delta) bool) {
		for t, c := range b.roots() {
			if kinds != nil && !kinds[c.kind()] {
				continue
			}
			more := true
			emit := func(ch change) bool {
				more = yieldDelta(c, ch, yield)
				return more
			}
			if t.all {
				diffTrees(c.before, c.after, emit)
			} else {
				diffKeys(t.keys, c, emit)
			}
			if !more {
				return
			}
		}
	}
}

// kind is that of the scope.
func (c scopeChange) kind() Kind {
	if c.after != nil {
		return c.after.kind
	}
	return c.before.kind
}

func diffKeys(keys []*identity, c scopeChange, yield func(change) bool) {
	for _, k := range keys {
		var ch change
		if c.before != nil {
			ch.before, _ = c.before.objects.Get(&entry{identity: k})
		}
		if c.after != nil {
			ch.after, _ = c.after.objects.Get(&entry{identity: k})
		}
		if ch.before != ch.after && !yield(ch) {
			return
		}
	}
}

// yieldDelta splits the delta of an object that was replaced by another of the same name.
func yieldDelta(s scopeChange, c change, yield func(Delta) bool) bool {
	var d Delta
	if c.before != nil {
		d.Before = Object{s.before.scopeID, c.before}
		d.Ref = d.Before.Ref()
	}
	if c.after != nil {
		d.After = Object{s.after.scopeID, c.after}
		d.Ref = d.After.Ref()
	}
	if c.before != nil && c.after != nil && !sameUID(c.before.identity, c.after.identity) {
		return yield(Delta{Ref: d.Ref, Before: d.Before}) && yield(Delta{Ref: d.Ref, After: d.After})
	}
	return yield(d)
}

// Scopes yields the scopes whose status, version or resource changed, by kind,
// then member.
func (b *Batch) Scopes() iter.Seq[ScopeDelta] {
	return func(yield func(ScopeDelta) bool) {
		for _, c := range b.roots() {
			var d ScopeDelta
			switch {
			case c.before == nil:
				d.After = c.after.info()
				d.Before = ScopeInfo{Member: d.After.Member, Kind: d.After.Kind}
			case c.after == nil:
				d.Before = c.before.info()
				d.After = ScopeInfo{Member: d.Before.Member, Kind: d.Before.Kind}
			default:
				d = ScopeDelta{c.before.info(), c.after.info()}
				if c.before.status == c.after.status && c.before.as == c.after.as {
					continue
				}
			}
			if !yield(d) {
				return
			}
		}
	}
}

// Members yields the members that joined, left or changed, by name.
func (b *Batch) Members() iter.Seq[MemberDelta] {
	return func(yield func(MemberDelta) bool) {
		if b.Before.members == b.After.members {
			return // as most commits leave them
		}
		diffOrdered(b.Before.members, b.After.members, lessMember, func(before, after *memberRoot) bool {
			var d MemberDelta
			if before != nil {
				d.Before = &before.Member
			}
			if after != nil {
				d.After = &after.Member
			}
			if before != nil && after != nil && equalMembers(before.Member, after.Member) {
				return true
			}
			if before != nil && after != nil && before.UID != after.UID {
				return yield(MemberDelta{Before: d.Before}) && yield(MemberDelta{After: d.After})
			}
			return yield(d)
		})
	}
}
