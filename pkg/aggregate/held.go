package aggregate

import "iter"

// Newest returns the newest state, of which readers may see only the part that was released.
// It is for those who write the index, and for who releases it.
func (x *Index) Newest() *Snapshot { return x.newest.Load().snapshot }

// Pending is what was committed and is not released.
type Pending struct {
	index *Index
	from  Revision
	last  *published
}

// Pending returns what was committed after a state, and a channel that is closed once there
// is more.
func (x *Index) Pending(after *Snapshot) (Pending, <-chan struct{}) {
	p := x.newest.Load()
	return Pending{index: x, from: after.revision, last: p}, p.later
}

// Snapshot returns the state after all that is pending.
func (p Pending) Snapshot() *Snapshot { return p.last.snapshot }

// Release shows readers all that is pending. What was released meanwhile stays: a state that
// readers have never makes way for an older one.
func (p Pending) Release() {
	x := p.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current.Load().snapshot.revision < p.last.snapshot.revision {
		x.show(p.last)
	}
}

// Commit is one commit: the revisions above From, up to To.
type Commit struct {
	From, To Revision

	record *record
}

// Commits yields what is pending, in its order. It reports false when the change log does not
// have all of it any more: the states before and after are then what is left to compare.
func (p Pending) Commits() (iter.Seq[Commit], bool) {
	log := p.last.log
	from, ok := log.since(p.from, p.last.snapshot.revision)
	if !ok || log.cutSince(p.from, "") {
		return nil, false
	}
	return func(yield func(Commit) bool) {
		for i := from; i < log.end; i++ {
			if r := log.at(i); !yield(Commit{From: r.from, To: r.to, record: r}) {
				return
			}
		}
	}, true
}

// Changes yields the changes of objects in their order: none where a commit changed the status
// of a scope, or a member.
func (c Commit) Changes() iter.Seq[Change] {
	return func(yield func(Change) bool) { c.record.each(yield) }
}

// Scopes yields the scopes that the commit is about.
func (c Commit) Scopes() iter.Seq2[string, Kind] {
	return func(yield func(string, Kind) bool) {
		if id := c.record.scope; id != nil && !yield(id.member, id.kind) {
			return
		}
		for _, b := range c.record.bulk {
			if id := b.scope(); !yield(id.member, id.kind) {
				return
			}
		}
	}
}
