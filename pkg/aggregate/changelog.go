package aggregate

import (
	"iter"
	"slices"
)

// change is one change of one object: nil before is an add, nil after a
// delete.
type change struct{ before, after *entry }

// scopeChange is a bulk change: the scope's roots before and after, nil if it did or does
// not exist. The difference is computed on demand.
type scopeChange struct{ before, after *scopeRoot }

// record is one commit in the change log: either the changes of one scope, without any if
// only its status changed, or bulk changes. It covers the revisions (from, to], and starts
// at the snapshot of since, which equals from unless a range of revisions ended between
// them.
type record struct {
	from, to Revision
	since    Revision
	member   string // that is known otherwise, or left; "" for a change of scopes
	left     bool
	scope    *scopeID // of changes
	changes  []change
	bulk     []scopeChange
	cut      bool        // it has only the names of its scopes, not the changes
	status   *[2]Status  // of the scope before and after; nil: it stayed
	members  *[2]*Member // before and after a change of what is known of the member

	// The bytes that the record keeps alive besides the present state, as of its creation:
	// former objects of changes, and of bulk.
	bytes, pinned int64
}

const (
	recordOverhead = 144
	statusOverhead = 96 // of a change of a status
	changeOverhead = 16
	bulkOverhead   = 160 // a scope's root without its trees
)

func bulkRecord(from, to Revision, bulk []scopeChange, pinned int64) *record {
	return &record{from: from, to: to, since: from, bulk: bulk, bytes: recordOverhead + int64(len(bulk))*bulkOverhead, pinned: pinned}
}

func memberRecord(from, to Revision, member string, bulk []scopeChange, pinned int64) *record {
	r := bulkRecord(from, to, bulk, pinned)
	r.member = member
	return r
}

func newRecord(from, to Revision, scope *scopeID, changes []change, released int64) *record {
	r := &record{from: from, to: to, since: from, scope: scope, changes: changes, bytes: recordOverhead + released}
	for _, c := range changes {
		r.bytes += changeOverhead + c.keptBytes()
	}
	return r
}

// stub returns a record with only the names of its scopes.
func (r *record) stub() *record {
	s := &record{from: r.from, to: r.to, since: r.since, member: r.member, left: r.left, members: r.members, scope: r.scope, status: r.status, bytes: recordOverhead, cut: true}
	if s.status != nil {
		s.bytes += statusOverhead
	}
	if len(r.bulk) == 1 {
		s.scope = r.bulk[0].scope()
		return s
	}
	for _, b := range r.bulk {
		s.bulk = append(s.bulk, scopeChange{before: &scopeRoot{scopeID: b.scope()}})
		s.bytes += bulkOverhead
	}
	return s
}

// touches reports whether the record is about a kind.
func (r *record) touches(kind Kind) bool {
	return r.scope != nil && r.scope.kind == kind || slices.ContainsFunc(r.bulk, func(b scopeChange) bool { return b.scope().kind == kind })
}

// within reports whether the record is about these kinds only.
func (r *record) within(kinds map[Kind]bool) bool {
	return (r.scope == nil || kinds[r.scope.kind]) && !slices.ContainsFunc(r.bulk, func(b scopeChange) bool { return !kinds[b.scope().kind] })
}

const chunkLen = 64

type chunk [chunkLen]*record

// changeLog is a window of records, oldest first. A value is immutable; add writes only to
// slots that no earlier value covers, so readers of an earlier one need no lock.
type changeLog struct {
	chunks     []*chunk
	start, end int // of the records, counted from chunks[0][0]
	pinning    int // no record before it pins anything
	bytes      int64
	pinned     int64
	cuts       []*record // those that were cut, oldest first; immutable
}

func (l changeLog) at(i int) *record { return l.chunks[i/chunkLen][i%chunkLen] }

// add returns the log with one more record, and without the oldest ones that
// exceed the bound. Bulk changes have a budget of their own.
func (l changeLog) add(r *record, bound int64) changeLog {
	if l.end == len(l.chunks)*chunkLen {
		l.chunks = append(l.chunks[:len(l.chunks):len(l.chunks)], new(chunk))
	}
	l.chunks[l.end/chunkLen][l.end%chunkLen] = r
	l.end++
	l.bytes += r.bytes
	l.pinned += r.pinned
	l = l.cutBulk(bound)
	for l.start < l.end && (l.bytes > bound || len(l.cuts) > maxCuts) {
		old := l.at(l.start)
		l.bytes -= old.bytes
		l.pinned -= old.pinned
		if old.bytes+old.pinned > heavyRecord || old.bulk != nil {
			l = l.with(l.start, nil) // a bulk record also covers what happened since
		}
		l.start++
		if len(l.cuts) > 0 && l.cuts[0] == old {
			l.cuts = l.cuts[1:]
		}
	}
	l.pinning = max(l.pinning, l.start)
	if drop := l.start / chunkLen; drop > 0 {
		l.chunks = l.chunks[drop:]
		l.start -= drop * chunkLen
		l.end -= drop * chunkLen
		l.pinning -= drop * chunkLen
	}
	return l
}

const (
	maxCuts = 256

	// The last bulk change may exceed the bound by this factor, for this many commits:
	// readers that keep up see it, and need not list again because one member has left.
	lastBulk  = 4
	lastStays = 1024
)

// cutBulk cuts bulk records that keep more alive than the bound, the oldest first. All other
// changes stay: bulk changes of one member must not make readers of other kinds list again.
func (l changeLog) cutBulk(bound int64) changeLog {
	for l.pinned > bound {
		r := l.at(l.pinning)
		switch {
		case r.pinned == 0:
			l.pinning++
			continue
		case r.pinned == l.pinned && r.pinned <= lastBulk*bound && l.end-l.pinning <= lastStays:
			return l
		}
		l = l.cutAt(l.pinning)
	}
	return l
}

// cutAt cuts a bulk record, and all earlier ones of its kinds: these are of no use to
// readers any more, and their results are what the bulk record keeps alive.
func (l changeLog) cutAt(at int) changeLog {
	kinds := map[Kind]bool{}
	for _, b := range l.at(at).bulk {
		kinds[b.scope().kind] = true
	}
	from := l.start
	if len(kinds) == 1 {
		for i := len(l.cuts) - 1; i >= 0; i-- {
			if l.cuts[i].touches(l.at(at).bulk[0].scope().kind) {
				from = l.beyond(l.cuts[i].to) // earlier records were cut with it
				break
			}
		}
	}
	l.chunks = slices.Clone(l.chunks)
	own := -1
	for i := from; i <= at; i++ {
		old := l.at(i)
		if old.cut || !old.within(kinds) {
			continue
		}
		if n := i / chunkLen; n != own {
			c := *l.chunks[n]
			l.chunks[n], own = &c, n
		}
		stub := old.stub()
		l.chunks[own][i%chunkLen] = stub
		l.bytes += stub.bytes - old.bytes
		l.pinned -= old.pinned
	}
	l.cuts = append(l.cuts[:len(l.cuts):len(l.cuts)], l.at(at))
	return l
}

// beyond returns the index of the first record that goes beyond a revision.
func (l changeLog) beyond(rev Revision) int {
	lo, hi := l.start, l.end
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if l.at(mid).to > rev {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// heavyRecord is how many bytes a record that left the window may keep alive until its chunk
// is released.
const heavyRecord = 64 << 10

// with returns the log with a copy of one chunk in which one record is replaced or removed.
func (l changeLog) with(i int, r *record) changeLog {
	c := *l.chunks[i/chunkLen]
	c[i%chunkLen] = r
	l.chunks = slices.Clone(l.chunks)
	l.chunks[i/chunkLen] = &c
	return l
}

// since returns the index of the first record that goes beyond rev, and false
// when the log no longer reaches back that far.
func (l changeLog) since(rev, current Revision) (int, bool) {
	if rev == current {
		return l.end, true
	}
	i := l.beyond(rev)
	if i == l.end {
		return i, false
	}
	// A revision inside the oldest record is covered like one before it: the record holds
	// every change.
	return i, l.at(i).since <= rev
}

// Change is one change of one object in the change log.
type Change struct {
	Revision      Revision
	Before, After Object
}

// Changes yields every change after a revision, in their order, up to the newest. ErrExpired
// is returned when the log no longer reaches back that far or the index does not own the
// revision, ErrFuture when it has not been reached.
func (x *Index) Changes(after Revision) (iter.Seq[Change], error) { return x.ChangesOf("", after) }

// ChangesOf is Changes for one kind. The log may reach back further for one kind than for
// all: large bulk changes are dropped first.
func (x *Index) ChangesOf(kind Kind, after Revision) (iter.Seq[Change], error) {
	p := x.current.Load()
	switch {
	case !x.Owns(after):
		return nil, ErrExpired
	case after > p.snapshot.revision:
		return nil, ErrFuture
	}
	from, ok := p.log.since(after, p.snapshot.revision)
	if !ok || p.log.cutSince(after, kind) {
		return nil, ErrExpired
	}
	return func(yield func(Change) bool) {
		skip := func(c Change) bool { return c.Revision <= after || kind != "" && c.kind() != kind || yield(c) }
		for i := from; i < p.log.end; i++ {
			if !p.log.at(i).each(skip) {
				return
			}
		}
	}, nil
}

func (c Change) kind() Kind {
	if c.After.IsZero() {
		return c.Before.scope.kind
	}
	return c.After.scope.kind
}

// cutSince reports whether changes of a kind after a revision have been dropped; "" is any
// kind.
func (l changeLog) cutSince(after Revision, kind Kind) bool {
	for i := len(l.cuts) - 1; i >= 0 && l.cuts[i].to > after; i-- {
		if kind == "" || l.cuts[i].touches(kind) {
			return true
		}
	}
	return false
}

func (r *record) each(yield func(Change) bool) bool {
	if r.cut {
		return true // of another kind than the requested one, or older
	}
	rev := r.from
	for _, c := range r.changes {
		rev++
		if !yield(makeChange(rev, scopeIDs{r.scope, r.scope}, c)) {
			return false
		}
	}
	for _, b := range r.bulk {
		if !r.eachDeleted(b, &rev, yield) {
			return false
		}
	}
	for _, b := range r.bulk {
		if !r.eachUpserted(b, yield) {
			return false
		}
	}
	return true
}

// scope is the scope of a bulk change.
func (c scopeChange) scope() *scopeID {
	if c.before != nil {
		return c.before.scopeID
	}
	return c.after.scopeID
}

type scopeIDs struct{ before, after *scopeID }

func (c scopeChange) ids() (ids scopeIDs) {
	if c.before != nil {
		ids.before = c.before.scopeID
	}
	if c.after != nil {
		ids.after = c.after.scopeID
	}
	return ids
}

func makeChange(rev Revision, ids scopeIDs, c change) Change {
	out := Change{Revision: rev}
	if c.before != nil {
		out.Before = Object{ids.before, c.before}
	}
	if c.after != nil {
		out.After = Object{ids.after, c.after}
	}
	return out
}

// eachDeleted yields the deletions of a bulk change, which precede the additions.
func (r *record) eachDeleted(b scopeChange, rev *Revision, yield func(Change) bool) bool {
	more := true
	diffTrees(b.before, b.after, func(c change) bool {
		if c.before != nil && (c.after == nil || !sameUID(c.before.identity, c.after.identity)) {
			*rev++
			more = yield(makeChange(*rev, b.ids(), change{before: c.before}))
		}
		return more
	})
	return more
}

func (r *record) eachUpserted(b scopeChange, yield func(Change) bool) bool {
	more := true
	diffTrees(b.before, b.after, func(c change) bool {
		if c.after == nil {
			return true
		}
		rev := c.after.revision
		if c.before != nil && !sameUID(c.before.identity, c.after.identity) {
			c.before = nil
		}
		more = yield(makeChange(rev, b.ids(), c))
		return more
	})
	return more
}
