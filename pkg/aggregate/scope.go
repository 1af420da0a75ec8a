package aggregate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unique"
)

// Scope writes one scope. Its methods but Item, Held and Size belong to one
// goroutine, which may differ from the one that calls Item.
type Scope struct {
	index    *Index
	codec    *kindCodec
	declared []fieldPath
	interned *interner

	// mu guards all below. Only Train and RemoveMember contend for it.
	mu      sync.Mutex
	closed  bool
	stale   bool // the objects are of another API version, until Replace
	id      *scopeID
	target  string     // API version that items are of
	root    scopeRoot  // the next root: its trees are private
	last    *scopeRoot // as published last; trees not touched since are shared with it
	touched touched
	dirty   bool
	changes []change
	refs    map[*attrSet]int // identities that have a set
	owned   map[*ownerSet]int

	scratch []byte // Item's
	pairs   []Label
}

// Item is an object encoded for one scope, not yet in it.
type Item struct {
	e        *entry
	rawBytes int
}

// OpenScope makes the caller the writer of a scope of a member that has
// joined, with objects at an API version such as "apps/v1". A scope that was
// closed is taken up as it is; where its objects are of another version, they
// stay until the first Replace, which exchanges them all.
func (x *Index) OpenScope(member string, kind Kind, version string) (*Scope, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m, ok := x.members.Get(&memberRoot{Member: Member{Name: member}})
	if !ok {
		return nil, fmt.Errorf("scope %s of member %q: %w", kind, member, ErrNoMember)
	}
	k := scopeKey{member, kind}
	if x.writers[k] != nil {
		return nil, fmt.Errorf("scope %s of member %q: %w", kind, member, ErrScopeOpen)
	}
	s := &Scope{
		index: x, codec: x.codecs.of(kind), declared: x.fields[kind], interned: newInterner(),
		refs: map[*attrSet]int{}, owned: map[*ownerSet]int{}, target: version,
	}
	x.writers[k] = s
	if root, ok := x.scopes.Get(pivotScope(member, kind)); ok {
		s.adopt(root)
		return s, nil
	}
	s.id = &scopeID{member: member, kind: kind, version: version}
	s.root = newRoot(s.id)
	root := s.freeze()
	x.members.Set(m.with(kind))
	x.scopes.Set(root)
	old := x.current.Load()
	at := old.snapshot.revision
	x.publish(old, newRecord(at, at+1, nil, nil, []scopeChange{{after: root}}))
	return s, nil
}

// adopt takes up the root that an earlier writer left. The published trees are
// copied by walking them, never by Copy, which writes to its receiver.
func (s *Scope) adopt(root *scopeRoot) {
	s.id = root.scopeID
	s.stale = s.id.version != s.target
	s.root = newRoot(s.id)
	s.root.status = root.status
	root.objects.Scan(func(e *entry) bool {
		s.root.objects.Load(e)
		s.root.bytes += e.size()
		s.link(e.identity)
		return true
	})
}

// Item encodes a record for the scope, without adding it. It is safe beside
// the writer's other calls, from one goroutine at a time.
func (s *Scope) Item(rec *Record) Item {
	id := &identity{
		namespace: unique.Make(rec.Namespace),
		name:      strings.Clone(rec.Name),
		labels:    s.interned.set(labelSpace, rec.Labels),
	}
	e := &entry{identity: id}
	uid, okUID := parseUID(rec.UID)
	rv, okRV := parseRV(rec.ResourceVersion)
	id.uid, e.rv = uid, rv
	if okUID && okRV {
		id.owners = s.interned.ownerSet(rec.Owners)
	} else {
		id.owners = &ownerSet{
			owners: copyOwners(rec.Owners), odd: true,
			uid: strings.Clone(rec.UID), rv: strings.Clone(rec.ResourceVersion),
		}
	}
	if len(s.declared) > 0 {
		s.pairs = fieldValues(s.pairs[:0], rec.Body, s.declared)
		id.fields = s.interned.set(fieldSpace, s.pairs)
	}
	var b *body
	b, s.scratch = s.codec.encode(rec.Body, s.scratch)
	e.body.Store(b)
	return Item{e: e, rawBytes: len(rec.Body)}
}

// Key returns the item's namespace and name.
func (i Item) Key() (namespace, name string) { return i.e.namespace.Value(), i.e.name }

// UID returns the item's UID as the member wrote it.
func (i Item) UID() string { return i.e.uidString() }

// ResourceVersion returns the item's resourceVersion as the member wrote it.
func (i Item) ResourceVersion() string { return i.e.rvString() }

// Size returns the heap bytes that holding the item costs, estimated.
func (i Item) Size() int64 { return i.e.size() }

// Held returns the item of an object that the scope holds at exactly this
// version, so that a relist need not decode it again.
func (s *Scope) Held(namespace, name, uid, resourceVersion string) (Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.root.objects.Get(&entry{identity: key(namespace, name)})
	if !ok || s.stale || !e.sameVersion(uid, resourceVersion) {
		return Item{}, false
	}
	return Item{e: e}, true
}

// Size returns the number of objects that the scope holds and their heap
// bytes, estimated; commits to come included.
func (s *Scope) Size() (objects int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root.objects.Len(), s.root.bytes
}

// Upsert adds or updates an object at the next Commit. An item of the version
// that is held changes nothing.
func (s *Scope) Upsert(item Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upsert(item.e, true)
}

// upsert puts an entry into the private trees. With note it becomes a change
// of its own in the log; another UID is a delete and an add.
func (s *Scope) upsert(e *entry, note bool) {
	old, ok := s.root.objects.Get(e)
	if ok && (old == e || !s.stale && old.rv != oddRV && old.rv == e.rv && sameUID(old.identity, e.identity)) {
		return
	}
	reborn := false
	switch {
	case !ok:
		s.link(e.identity)
	case sameUID(old.identity, e.identity):
		if sameIndexed(old.identity, e.identity) {
			e.identity = old.identity
		} else {
			s.unlink(old.identity)
			s.link(e.identity)
		}
	default:
		s.unlink(old.identity)
		s.link(e.identity)
		reborn = true
	}
	s.root.objects.Set(e)
	s.touched.objects = true
	s.root.bytes += e.size()
	if ok {
		s.root.bytes -= old.size()
	}
	s.dirty = true
	switch {
	case !note:
	case reborn:
		s.changes = append(s.changes, change{before: old}, change{after: e})
	default:
		s.changes = append(s.changes, change{before: old, after: e})
	}
}

// sameIndexed reports whether two versions of one object look the same to the
// secondary indexes. Odd identities are never shared: they hold the version.
func sameIndexed(a, b *identity) bool {
	return a.labels == b.labels && a.fields == b.fields && a.owners == b.owners
}

// Delete removes an object at the next Commit, if it is there.
func (s *Scope) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.remove(key(namespace, name)); ok {
		s.changes = append(s.changes, change{before: old})
	}
}

func (s *Scope) remove(id *identity) (*entry, bool) {
	old, ok := s.root.objects.Delete(&entry{identity: id})
	if !ok {
		return nil, false
	}
	s.unlink(old.identity)
	s.touched.objects = true
	s.root.bytes -= old.size()
	s.dirty = true
	return old, true
}

// freeze returns the private root as an immutable one. The private trees go on
// from copies, so what is published is never written again.
func (s *Scope) freeze() *scopeRoot {
	r := s.root
	if last := s.last; last != nil {
		r.objects, r.owners, r.labels, r.fields = last.objects, last.owners, last.labels, last.fields
	}
	if s.touched.objects || s.last == nil {
		r.objects = s.root.objects.Copy()
	}
	if s.touched.owners || s.last == nil {
		r.owners = s.root.owners.Copy()
	}
	if s.touched.labels || s.last == nil {
		r.labels = s.root.labels.copy()
	}
	if s.touched.fields || s.last == nil {
		r.fields = s.root.fields.copy()
	}
	s.touched = touched{}
	s.last = &r
	checkRoot(&r)
	return &r
}

// Commit publishes what Upsert, Delete and SetStatus have changed since the
// last one, and returns the revision at which all of it is visible: the
// current one when there was nothing.
func (s *Scope) Commit() (Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, s.errClosed()
	}
	if !s.dirty {
		return s.index.Snapshot().revision, nil
	}
	changes := slices.Clone(s.changes)
	clear(s.changes)
	s.changes = s.changes[:0]
	root := s.freeze()
	return s.publish(root, func(at Revision, before *scopeRoot) *record {
		if len(changes) == 0 {
			return newRecord(at, at+1, nil, nil, []scopeChange{{before, root}})
		}
		to := at
		for _, c := range changes {
			to++
			if c.after != nil {
				c.after.revision = to
			}
		}
		return newRecord(at, to, s.id, changes, nil)
	})
}

// publish swaps the scope's root for the next one. Entries get their revisions
// here, before any reader can see them. s.mu must be held.
func (s *Scope) publish(root *scopeRoot, rec func(at Revision, before *scopeRoot) *record) (Revision, error) {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.writers[scopeKey{s.id.member, s.id.kind}] != s {
		return 0, s.errClosed() // the member has left
	}
	old := x.current.Load()
	before, _ := x.scopes.Set(root)
	r := rec(old.snapshot.revision, before)
	x.publish(old, r)
	s.dirty = false
	return r.to, nil
}

// Replace makes the scope hold exactly these objects: one commit, whatever
// their number. Of items with one key the last counts. Changes not yet
// committed are part of it.
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
		return 0, s.errClosed()
	}
	// Uncommitted changes become part of the bulk record: its roots cover them.
	clear(s.changes)
	s.changes = s.changes[:0]
	s.setStatus(status)
	for i, item := range sorted {
		if i+1 < len(sorted) && compareKeys(item.e.identity, sorted[i+1].e.identity) == 0 {
			continue
		}
		s.upsert(item.e, false)
	}
	if s.stale {
		namespace = "" // objects of the old version do not stay beside new ones
	}
	for _, id := range s.absent(namespace, sorted) {
		s.remove(id)
	}
	if s.stale {
		s.stale, s.dirty = false, true
		s.id = &scopeID{member: s.id.member, kind: s.id.kind, version: s.target}
		s.root.scopeID = s.id
	}
	if !s.dirty {
		return s.index.Snapshot().revision, nil
	}
	root := s.freeze()
	return s.publish(root, func(at Revision, before *scopeRoot) *record {
		return numberBulk(at, before, root)
	})
}

// absent returns the identities held, of one namespace or all, that the sorted
// items lack.
func (s *Scope) absent(namespace string, sorted []Item) []*identity {
	var gone []*identity
	i := 0
	s.root.objects.Ascend(&entry{identity: key(namespace, "")}, func(e *entry) bool {
		if namespace != "" && e.namespace.Value() != namespace {
			return false
		}
		for i < len(sorted) && compareKeys(sorted[i].e.identity, e.identity) < 0 {
			i++
		}
		if i == len(sorted) || compareKeys(sorted[i].e.identity, e.identity) != 0 {
			gone = append(gone, e.identity)
		}
		return true
	})
	return gone
}

// numberBulk gives the entries that are new in after their revisions, in key
// order after those of the deletions, and returns the bulk's record.
func numberBulk(at Revision, before, after *scopeRoot) *record {
	to := at
	diffTrees(before, after, func(c change) bool {
		if c.before != nil && (c.after == nil || !sameUID(c.before.identity, c.after.identity)) {
			to++
		}
		return true
	})
	diffTrees(before, after, func(c change) bool {
		if c.after != nil {
			to++
			c.after.revision = to
		}
		return true
	})
	if to == at {
		to++ // only the status changed
	}
	return newRecord(at, to, nil, nil, []scopeChange{{before, after}})
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

// Close gives the scope up: its objects and status stay as committed.
func (s *Scope) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.release()
}

// release gives up the place of the scope's writer, and reports whether it was
// still this one's. Both locks must be held.
func (s *Scope) release() bool {
	k := scopeKey{s.id.member, s.id.kind}
	if s.index.writers[k] != s {
		return false
	}
	delete(s.index.writers, k)
	return true
}

// Remove gives the scope up and takes it out of the index with all its
// objects: one commit.
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
	root, ok := x.scopes.Delete(pivotScope(s.id.member, s.id.kind))
	if !ok {
		return
	}
	if m, ok := x.members.Get(&memberRoot{Member: Member{Name: s.id.member}}); ok {
		x.members.Set(m.without(s.id.kind))
	}
	old := x.current.Load()
	at := old.snapshot.revision
	x.publish(old, newRecord(at, at+1+Revision(root.objects.Len()), nil, nil, []scopeChange{{before: root}}))
}

func (s *Scope) errClosed() error {
	return fmt.Errorf("scope %s of member %q: %w", s.id.kind, s.id.member, ErrClosed)
}
