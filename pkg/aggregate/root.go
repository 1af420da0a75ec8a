package aggregate

import "github.com/tidwall/btree"

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
	bytes   int64 // estimate of the heap bytes of the objects, bodies as encoded at the commit
}

func newRoot(id *scopeID) scopeRoot {
	return scopeRoot{
		scopeID: id, objects: newTree(lessEntry), owners: newTree(lessOwner),
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

// touched says which trees of a scope were written since they were published.
type touched struct{ objects, owners, labels, fields bool }

// link adds an identity to the secondary indexes.
func (s *Scope) link(id *identity) {
	s.linkSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.linkSet(&s.root.fields, &s.touched.fields, id.fields, id)
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

// unlink takes an identity out of the secondary indexes.
func (s *Scope) unlink(id *identity) {
	s.unlinkSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.unlinkSet(&s.root.fields, &s.touched.fields, id.fields, id)
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
