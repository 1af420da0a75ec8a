package aggregate

import "iter"

// Holds reports whether the index was made with Options.Hold.
func (x *Index) Holds() bool { return x.hold }

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

// Commit is one commit of one member: the revisions above From, up to To. It was made on the
// state of revision Since, which is From unless a range of revisions ended between them.
type Commit struct {
	Since, From, To Revision
	Member          string
	Kind            Kind // "" where it is not about a scope, but the member itself
	Left            bool // the member left

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
			if !yield(log.at(i).commit()) {
				return
			}
		}
	}, true
}

func (r *record) commit() Commit {
	c := Commit{Since: r.since, From: r.from, To: r.to, Member: r.member, Left: r.left, record: r}
	switch {
	case r.member != "":
	case r.scope != nil:
		c.Member, c.Kind = r.scope.member, r.scope.kind
	case len(r.bulk) == 1:
		id := r.bulk[0].scope()
		c.Member, c.Kind = id.member, id.kind
	}
	return c
}

// Changes yields the changes of objects in their order: none where a commit changed the status
// of a scope, or a member.
func (c Commit) Changes() iter.Seq[Change] {
	return func(yield func(Change) bool) { c.record.each(yield) }
}

// Scope returns the scope after the commit, as far as the change log knows: what its objects
// were read as. It reports false for one that was removed.
func (c Commit) Scope() (version, resource string, ok bool) {
	id := c.record.scope
	if len(c.record.bulk) == 1 {
		after := c.record.bulk[0].after
		if after == nil {
			return "", "", false
		}
		id = after.scopeID
	}
	if id == nil {
		return "", "", false
	}
	return id.version(), id.resource(), true
}
