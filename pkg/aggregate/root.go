package aggregate

import (
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
