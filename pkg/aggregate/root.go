package aggregate

import (
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"github.com/tidwall/btree"
)

// scopeID identifies the scope of an object. Immutable but for recoded and writer.
type scopeID struct {
	member string
	kind   Kind
	as     unique.Handle[heldAs] // interned: the same in most members

	recoded atomic.Int64 // see scopeRoot.bytes
	writer  *Scope       // nil: closed; guarded by the index's mu
}

// heldAs is what the objects of a scope were read as.
type heldAs struct {
	version  string // API version
	resource string // plural; "" when not known
}

func (id *scopeID) version() string { return id.as.Value().version }

func (id *scopeID) resource() string { return id.as.Value().resource }

// scopeRoot is a scope in a snapshot. Immutable, as are its trees. Most scopes of a fleet
// are empty: they share their trees, which are empty.
type scopeRoot struct {
	*scopeID
	status  Status
	objects *btree.BTreeG[*entry]
	*indexes
	changed Revision // of the last change of objects
	reach   *reach   // nil only in pivots

	// bytes estimates the heap bytes of the objects as they were encoded when recoded stood
	// at recodedAt. Changes by Train since then are in recoded, which the roots of a scope
	// share: exact for the newest one, approximate for others.
	bytes     int64 // including the sets that objects share
	recodedAt int64
}

// indexes are the secondary indexes of a scope. Immutable once published.
type indexes struct {
	owners *btree.BTreeG[ownerRef]
	labels attrIndex
	fields attrIndex
}

// What empty scopes share. Never written, nor copied: a copy writes to the original.
var (
	noObjects = newTree(lessEntry)
	noIndexes = &indexes{
		owners: newTree(lessOwner),
		labels: newAttrIndex(func(id *identity) *attrSet { return id.labels }),
		fields: newAttrIndex(func(id *identity) *attrSet { return id.fields }),
	}
)

func (r *scopeRoot) size() int64 { return r.bytes + r.recoded.Load() - r.recodedAt }

// totals are the sums of the scopes' objects and bytes. Bytes are as of each scope's commit.
type totals struct {
	objects int
	bytes   int64
}

func (t *totals) add(r *scopeRoot, sign int) {
	t.objects += sign * r.objects.Len()
	t.bytes += int64(sign) * r.bytes
}

func newRoot(id *scopeID) scopeRoot {
	return scopeRoot{scopeID: id, objects: noObjects, indexes: noIndexes}
}

// ownerRef is one owner of one object, ordered by the owner's UID.
type ownerRef struct {
	uid string
	*identity
}

func lessOwner(a, b ownerRef) bool {
	if a.uid != b.uid {
		return a.uid < b.uid
	}
	return compareKeys(a.identity, b.identity) < 0
}

func lessEntry(a, b *entry) bool { return compareKeys(a.identity, b.identity) < 0 }

func lessScope(a, b *scopeRoot) bool {
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.member < b.member
}

func pivotScope(member string, kind Kind) *scopeRoot {
	return &scopeRoot{scopeID: &scopeID{member: member, kind: kind}}
}

// pivot is the key of a point read. Trees have keys by pointer, so without reuse every read
// would allocate one.
type pivot struct {
	scope   scopeRoot
	scopeID scopeID
	object  entry
	key     identity
}

func newPivot() *pivot {
	p := &pivot{}
	p.scope.scopeID, p.object.identity = &p.scopeID, &p.key
	return p
}

// at sets the pivot to a key and returns the lookup key.
func (p *pivot) at(namespace, name string) *entry {
	p.key.namespace, p.key.name = unique.Make(namespace), name
	return &p.object
}

// in sets the pivot to a scope and returns the lookup key.
func (p *pivot) in(member string, kind Kind) *scopeRoot {
	p.scopeID.member, p.scopeID.kind = member, kind
	return &p.scope
}

// touched says which trees of a scope's next root are private, and which were modified.
type touched struct{ objects, indexes, owners, labels, fields bool }

// private returns a tree that a scope's writer may write, given a published one. The nodes
// are shared until they are written. Copy writes to its receiver what only Copy and writes
// read: one writer may copy a tree that others read.
func private[T any](published *btree.BTreeG[T], less func(a, b T) bool) *btree.BTreeG[T] {
	if published.Len() == 0 { // perhaps that of all empty scopes
		return newTree(less)
	}
	return published.Copy()
}

// diffOrdered iterates over two ordered trees of pointers in parallel and yields the pairs
// that differ, nil for a missing item, until yield returns false.
func diffOrdered[T any](before, after *btree.BTreeG[*T], less func(a, b *T) bool, yield func(before, after *T) bool) {
	old := before.Iter()
	defer old.Release()
	left := old.First()
	more := true
	after.Scan(func(item *T) bool {
		for more && left && less(old.Item(), item) {
			more = yield(old.Item(), nil)
			left = old.Next()
		}
		if !more {
			return false
		}
		var was *T
		if left && !less(item, old.Item()) {
			was = old.Item()
			left = old.Next()
		}
		if was != item {
			more = yield(was, item)
		}
		return more
	})
	for more && left {
		more = yield(old.Item(), nil)
		left = old.Next()
	}
}

// Part is how far a member has been read for a part of a scope: whoever holds the scope as it
// is resumes from there and misses nothing.
type Part struct {
	Namespace       string // "" for the entire scope
	ResourceVersion string // of the member
	// Served says, in the words of who reads the member, what else determines the content of what
	// it serves, as its version does. What was read otherwise cannot be continued.
	Served string
}

// reach is the parts of one root of a scope. It goes on after the root was published for as
// long as nothing in the scope changes.
type reach struct {
	parts atomic.Pointer[[]Part] // the slice is immutable
}

func (r *reach) list() []Part {
	if r == nil {
		return nil
	}
	if p := r.parts.Load(); p != nil {
		return *p
	}
	return nil
}

// Reached says that the scope has, with the changes that were made and not committed, all that
// the member had at the resourceVersion of the part. The next Commit or Replace records it, in
// one step with these changes; it is no change of its own and takes no revision. Without a
// resourceVersion it says that this is not known. Nor is it after a commit of changes, or a Replace,
// since the one before which nobody has said it.
func (s *Scope) Reached(p Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stated = true
	i, known := slices.BinarySearchFunc(s.parts, p.Namespace, func(p Part, namespace string) int { return strings.Compare(p.Namespace, namespace) })
	switch {
	case known && s.parts[i] == p, !known && p.ResourceVersion == "":
		return
	case known && p.ResourceVersion == "":
		s.parts = slices.Delete(slices.Clone(s.parts), i, i+1)
	default:
		p.ResourceVersion = strings.Clone(p.ResourceVersion)
		if s.parts = slices.Clone(s.parts); known {
			s.parts[i] = p
		} else {
			s.parts = slices.Insert(s.parts, i, p)
		}
	}
	s.moved = true
}

// Reach returns how far the member had been read for what the scope has, by namespace: none where it
// has what was read otherwise. The slice is shared and must not be changed.
func (s *Scope) Reach() []Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts
}

// unstated forgets what was reached where nobody has said it of what is committed now. s.mu must be held.
func (s *Scope) unstated() {
	if !s.stated && len(s.parts) > 0 {
		s.parts, s.moved = nil, true
	}
	s.stated = false
}

// advance records what was reached without a change of the scope. s.mu must be held, and
// nothing be left to commit.
func (s *Scope) advance() {
	if !s.moved || s.last == nil {
		return
	}
	parts := s.parts
	s.last.reach.parts.Store(&parts)
	s.moved = false
}

// newReach returns what was reached, for the next root. s.mu must be held.
func (s *Scope) newReach() *reach {
	r := &reach{}
	if parts := s.parts; len(parts) > 0 {
		r.parts.Store(&parts)
	}
	s.moved = false
	return r
}

// Reached returns how far the member had been read for a scope of the snapshot, by namespace.
// It goes on while the scope does not change. The slice is shared and must not be changed.
func (s *Snapshot) Reached(member string, kind Kind) []Part {
	r, ok := s.scope(member, kind)
	if !ok {
		return nil
	}
	return r.reach.list()
}
