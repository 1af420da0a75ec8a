package aggregate

import (
	"sync/atomic"
	"unique"

	"github.com/tidwall/btree"
)

// scopeID is what objects of a scope need to say where they are. Immutable.
type scopeID struct {
	member  string
	kind    Kind
	version string // API version that the objects are held at
}

// scopeRoot is a scope in a snapshot. Immutable, as are its trees.
type scopeRoot struct {
	*scopeID
	status  Status
	objects *btree.BTreeG[*entry]
	owners  *btree.BTreeG[ownerRef]
	labels  attrIndex
	fields  attrIndex

	// bytes estimates the heap bytes of the objects as they were encoded when
	// recoded stood at recodedAt. What Train has done since is in recoded, which
	// the roots of a scope share: right for the newest one, near for others.
	bytes     int64
	recoded   *atomic.Int64
	recodedAt int64
}

func (r *scopeRoot) size() int64 { return r.bytes + r.recoded.Load() - r.recodedAt }

func newRoot(id *scopeID) scopeRoot {
	return scopeRoot{
		scopeID: id, recoded: new(atomic.Int64), objects: newTree(lessEntry), owners: newTree(lessOwner),
		labels: newAttrIndex(func(id *identity) *attrSet { return id.labels }),
		fields: newAttrIndex(func(id *identity) *attrSet { return id.fields }),
	}
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

// pivot is what a point read searches by. Trees take their keys by pointer, so
// without reuse every read would allocate it.
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

// at points the pivot at a key and returns what to look it up by.
func (p *pivot) at(namespace, name string) *entry {
	p.key.namespace, p.key.name = unique.Make(namespace), name
	return &p.object
}

// in points the pivot at a scope and returns what to look it up by.
func (p *pivot) in(member string, kind Kind) *scopeRoot {
	p.scopeID.member, p.scopeID.kind = member, kind
	return &p.scope
}

// touched says which trees of a scope were written since they were published.
type touched struct{ objects, owners, labels, fields bool }

// link adds an identity to the secondary indexes.
func (s *Scope) link(id *identity) {
	s.linkSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.linkSet(&s.root.fields, &s.touched.fields, id.fields, id)
	s.linkOwners(id)
}

func (s *Scope) linkOwners(id *identity) {
	if id.owners == nil {
		return
	}
	if !id.owners.odd {
		s.owned[id.owners]++
	}
	s.touched.owners = true
	for _, o := range id.owners.owners {
		s.root.owners.Set(ownerRef{o.UID, id})
	}
}

func (s *Scope) linkSet(x *attrIndex, touched *bool, set *attrSet, id *identity) {
	if set == nil {
		return
	}
	*touched = true
	x.postings.Set(id)
	if s.refs[set]++; s.refs[set] == 1 {
		x.pairs.Set(pair{set: set}) // leads to every set
		for _, p := range set.pairs {
			x.pairs.Set(pair{p.Key, p.Value, set})
		}
	}
}

// relink exchanges an identity for another of the same key. A set that both
// have stays linked: it must not be forgotten in between.
func (s *Scope) relink(old, id *identity) {
	s.relinkSet(&s.root.labels, &s.touched.labels, old.labels, id.labels, old, id)
	s.relinkSet(&s.root.fields, &s.touched.fields, old.fields, id.fields, old, id)
	if old.owners == nil && id.owners == nil {
		return
	}
	s.touched.owners = true
	if old.owners != nil && old.owners == id.owners {
		for _, o := range id.owners.owners {
			s.root.owners.Set(ownerRef{o.UID, id})
		}
		return
	}
	s.unlinkOwners(old)
	s.linkOwners(id)
}

func (s *Scope) relinkSet(x *attrIndex, touched *bool, before, after *attrSet, old, id *identity) {
	if before != nil && before == after {
		*touched = true
		x.postings.Set(id)
		return
	}
	s.unlinkSet(x, touched, before, old)
	s.linkSet(x, touched, after, id)
}

// unlink takes an identity out of the secondary indexes.
func (s *Scope) unlink(id *identity) {
	s.unlinkSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.unlinkSet(&s.root.fields, &s.touched.fields, id.fields, id)
	s.unlinkOwners(id)
}

func (s *Scope) unlinkOwners(id *identity) {
	if id.owners == nil {
		return
	}
	s.touched.owners = true
	for _, o := range id.owners.owners {
		s.root.owners.Delete(ownerRef{o.UID, id})
	}
	if id.owners.odd {
		return
	}
	if s.owned[id.owners]--; s.owned[id.owners] == 0 {
		delete(s.owned, id.owners)
		s.interned.forgetOwners(id.owners)
	}
}

func (s *Scope) unlinkSet(x *attrIndex, touched *bool, set *attrSet, id *identity) {
	if set == nil {
		return
	}
	*touched = true
	x.postings.Delete(id)
	if s.refs[set]--; s.refs[set] > 0 {
		return
	}
	delete(s.refs, set)
	x.pairs.Delete(pair{set: set})
	for _, p := range set.pairs {
		x.pairs.Delete(pair{p.Key, p.Value, set})
	}
	s.interned.forget(set)
}
