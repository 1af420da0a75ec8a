package aggregate

import (
	"fmt"
	"slices"
)

// freeze returns the published root and the private one as immutable. The next write to one
// of its trees makes a copy, so published ones are never written again.
func (s *Scope) freeze() (before, after *scopeRoot) {
	before = s.last
	if s.touched.objects && s.root.objects.Len() == 0 {
		s.root.objects, s.root.indexes = noObjects, noIndexes // without objects all are empty
	}
	s.root.recodedAt = s.root.recoded.Load()
	s.touched = touched{}
	s.root.reach = s.newReach()
	r := s.root
	s.last = &r
	checkRoot(&r)
	return before, &r
}

// Commit publishes the changes by Upsert, Delete and SetStatus since the last commit, and
// returns the revision at which all of them are visible: the current one if there were none.
// Errors are ErrClosed and ErrExhausted, after which the scope is unusable.
func (s *Scope) Commit() (Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, s.fail(ErrClosed)
	}
	s.sweep()
	if !s.dirty {
		s.stated = false
		s.advance()
		return s.index.Newest().revision, nil
	}
	if len(s.changes) > 0 {
		s.unstated()
	}
	s.stated = false
	changes := s.takeChanges()
	released := s.takeReleased()
	_, root := s.freeze()
	return s.publish(root, max(1, len(changes)), func(at Revision) *record {
		to := at
		if len(changes) == 0 {
			to++ // only the status changed
		}
		for _, c := range changes {
			to++
			if c.after != nil {
				c.after.revision = to
			}
		}
		return newRecord(at, to, s.id, changes, released)
	})
}

// takeChanges returns the changes of single objects and resets them to none.
func (s *Scope) takeChanges() []change {
	const most = 64 // of a scope whose commits have several
	changes := s.changes
	if len(changes) == cap(changes) {
		s.changes = nil
		return changes
	}
	changes = slices.Clone(changes)
	clear(s.changes)
	if s.changes = s.changes[:0]; cap(s.changes) > most {
		s.changes = nil
	}
	return changes
}

// sweep drops sets that no object came to use.
func (s *Scope) sweep() {
	if t := s.interned.Load(); t != nil {
		t.sweep()
	}
}

// takeReleased returns the released bytes and resets them to zero.
func (s *Scope) takeReleased() int64 {
	released := s.released
	s.released = 0
	return released
}

// publish replaces the scope's root with the next one. Entries get their revisions here,
// before any reader can see them. s.mu must be held.
func (s *Scope) publish(root *scopeRoot, revisions int, rec func(at Revision) *record) (Revision, error) {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.id.writer != s {
		return 0, s.fail(ErrClosed) // the member has left
	}
	at, err := x.take(uint64(revisions))
	if err != nil {
		return 0, s.fail(err)
	}
	r := rec(at)
	if root.scopeID != s.id {
		x.setWriter(s.id, nil)
		x.setWriter(root.scopeID, s)
		s.id = root.scopeID
	}
	if was := x.exchange(s.codec, root, r.to); was.status != root.status {
		r.status = &[2]Status{was.status, root.status}
		r.bytes += statusOverhead
	}
	x.publish(r)
	if s.foreign.Load() {
		s.foreign.Store(false)
		s.codec.foreign.Store(true)
	}
	s.dirty = false
	return r.to, nil
}

// setWriter makes a scope's writer the one that may commit; nil is none. x.mu must be held.
func (x *Index) setWriter(id *scopeID, s *Scope) {
	if id.writer != nil {
		x.open--
	}
	if s != nil {
		x.open++
	}
	id.writer = s
}

// exchange puts a scope's next root in place of the one before, which it returns: an empty one where there was
// none. x.mu must be held.
func (x *Index) exchange(codec *kindCodec, root *scopeRoot, at Revision) (was *scopeRoot) {
	before, ok := x.scopes.Set(root)
	x.totals.add(root, 1)
	codec.held.add(root, 1)
	switch {
	case !ok:
		x.count(root.kind, root.resource(), 1)
		x.reshaped, root.changed = true, at
		return &scopeRoot{}
	case before.objects != root.objects:
		root.changed = at
	default:
		root.changed = before.changed
	}
	x.totals.add(before, -1)
	codec.held.add(before, -1)
	if was, is := before.resource(), root.resource(); was != is {
		x.count(root.kind, was, -1)
		x.count(root.kind, is, 1)
	}
	x.reshaped = x.reshaped || before.scopeID != root.scopeID || before.status != root.status
	return before
}

// Replace makes the scope hold exactly these objects: one commit, whatever their number.
// Objects with the same version and content do not change. Of several items with one key the
// last is used. Uncommitted changes are included. Errors are those of Commit.
func (s *Scope) Replace(items []Item, status Status) (Revision, error) {
	return s.ReplaceNamespace("", items, status)
}

// ReplaceNamespace is Replace for one namespace: objects of others stay. ""
// means the whole scope.
func (s *Scope) ReplaceNamespace(namespace string, items []Item, status Status) (Revision, error) {
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b Item) int { return compareKeys(a.e.identity, b.e.identity) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, s.fail(ErrClosed)
	}
	// Uncommitted changes become part of the bulk record: its roots cover them.
	s.changes = nil
	s.unstated()
	s.setStatus(status)
	for i, item := range sorted {
		if i+1 < len(sorted) && compareKeys(item.e.identity, sorted[i+1].e.identity) == 0 {
			continue
		}
		s.upsert(item.e, false)
	}
	if s.stale {
		namespace = "" // objects of the old version must not remain with new ones
	}
	for _, e := range s.absent(namespace, sorted) {
		s.remove(e)
	}
	if s.stale {
		s.stale, s.dirty = false, true
		s.root.scopeID = &scopeID{member: s.member, kind: s.kind, as: s.target}
	}
	s.sweep()
	if !s.dirty {
		s.advance()
		return s.index.Newest().revision, nil
	}
	before, root := s.freeze()
	deleted, put, pinned := compareRoots(before, root)
	pinned += s.takeReleased()
	return s.publish(root, max(1, deleted+len(put)), func(at Revision) *record {
		to := at + Revision(deleted)
		for _, e := range put {
			to++
			e.revision = to
		}
		if to == at { // only the status changed
			return newRecord(at, at+1, root.scopeID, nil, pinned)
		}
		return bulkRecord(at, to, []scopeChange{{before, root}}, pinned)
	})
}

// absent returns the entries of one namespace or all that are not in the sorted items.
func (s *Scope) absent(namespace string, sorted []Item) []*entry {
	var gone []*entry
	i := 0
	s.root.objects.Ascend(&entry{identity: key(namespace, "")}, func(e *entry) bool {
		if namespace != "" && e.namespace.Value() != namespace {
			return false
		}
		for i < len(sorted) && compareKeys(sorted[i].e.identity, e.identity) < 0 {
			i++
		}
		if i == len(sorted) || compareKeys(sorted[i].e.identity, e.identity) != 0 {
			gone = append(gone, e)
		}
		return true
	})
	return gone
}

// compareRoots returns how many objects of before are deleted in after, the entries that are
// new in after, by key, and the bytes that only before holds. The revisions of a bulk change
// are numbered in this order: the deletions by key, then the new entries.
func compareRoots(before, after *scopeRoot) (deleted int, put []*entry, pinned int64) {
	diffTrees(before, after, func(c change) bool {
		if c.before != nil {
			pinned += c.before.size()
			if c.after == nil || !sameUID(c.before.identity, c.after.identity) {
				deleted++
			}
		}
		if c.after != nil {
			put = append(put, c.after)
		}
		return true
	})
	return deleted, put, pinned
}

// SetStatus changes the scope's status at the next Commit.
func (s *Scope) SetStatus(status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setStatus(status)
}

func (s *Scope) setStatus(status Status) {
	if status == s.root.status {
		return
	}
	s.root.status = status
	s.dirty = true
}

// Status returns the scope's status, that of the next Commit included.
func (s *Scope) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root.status
}

// Close releases the scope: its objects and status stay as committed.
func (s *Scope) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.release()
}

// release removes the scope's writer, and reports whether this was still the writer. Both
// locks must be held.
func (s *Scope) release() bool {
	if s.id.writer != s {
		return false
	}
	s.index.setWriter(s.id, nil)
	return true
}

// Remove releases the scope and removes it from the index with all its objects, in one
// commit. If the index is exhausted the scope stays.
func (s *Scope) Remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if !s.release() {
		return
	}
	root, ok := x.scopes.Get(pivotScope(s.member, s.kind))
	if !ok {
		return
	}
	revisions := 1 + Revision(root.objects.Len())
	at, err := x.take(uint64(revisions))
	if err != nil {
		return
	}
	x.drop(root)
	x.reshaped = true
	if m, ok := x.members.Get(&memberRoot{Member: Member{Name: s.member}}); ok {
		x.setMember(m.without(s.kind))
	}
	x.publish(bulkRecord(at, at+revisions, []scopeChange{{before: root}}, root.treesSize()+root.size()))
}

// drop removes a scope from the next snapshot. x.mu must be held.
func (x *Index) drop(root *scopeRoot) {
	x.scopes.Delete(root)
	x.totals.add(root, -1)
	x.codecs.of(root.kind, x.fields[root.kind]).held.add(root, -1)
	x.count(root.kind, root.resource(), -1)
}

func (s *Scope) fail(err error) error {
	return fmt.Errorf("scope %s of member %q: %w", s.kind, s.member, err)
}
