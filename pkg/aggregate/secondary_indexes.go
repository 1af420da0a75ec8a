package aggregate

import "github.com/tidwall/btree"

// objects returns the next root's tree of objects, to be written.
func (s *Scope) objects() *btree.BTreeG[*entry] {
	if !s.touched.objects {
		s.root.objects, s.touched.objects = private(s.root.objects, lessEntry), true
	}
	return s.root.objects
}

// indexes returns the next root's indexes, whose trees are private once touched.
func (s *Scope) indexes() *indexes {
	if !s.touched.indexes {
		x := *s.root.indexes
		s.root.indexes, s.touched.indexes = &x, true
	}
	return s.root.indexes
}

// owners returns the index by owner, to be written.
func (s *Scope) owners() *btree.BTreeG[ownerRef] {
	x := s.indexes()
	if !s.touched.owners {
		x.owners, s.touched.owners = private(x.owners, lessOwner), true
	}
	return x.owners
}

// labels returns the index by label, to be written.
func (s *Scope) labels() *attrIndex {
	x := s.indexes()
	if !s.touched.labels {
		x.labels, s.touched.labels = x.labels.private(), true
	}
	return &x.labels
}

// fields returns the index by declared field, to be written.
func (s *Scope) fields() *attrIndex {
	x := s.indexes()
	if !s.touched.fields {
		x.fields, s.touched.fields = x.fields.private(), true
	}
	return &x.fields
}

// addToIndexes adds an identity to the secondary indexes, and its new shared sets to the
// account.
func (s *Scope) addToIndexes(id *identity) {
	if s.namespaces.add(id.namespace) {
		s.root.bytes += namespaceSize(id)
	}
	if id.labels != nil {
		s.indexSet(s.labels(), id.labels, id)
	}
	if id.fields != nil {
		s.indexSet(s.fields(), id.fields, id)
	}
	s.indexOwners(id)
}

func namespaceSize(id *identity) int64 {
	return namespaceBytes + allocated(len(id.namespace.Value()))
}

func (s *Scope) indexOwners(id *identity) {
	if id.owners == nil {
		return
	}
	if id.owners.users++; !id.owners.odd && id.owners.users == 1 {
		s.root.bytes += id.owners.size()
	}
	owners := s.owners()
	for _, o := range id.owners.owners {
		owners.Set(ownerRef{o.UID, id})
	}
}

func (s *Scope) indexSet(x *attrIndex, set *attrSet, id *identity) {
	x.postings.Set(id)
	if set.users++; set.users == 1 {
		s.root.bytes += set.size()
		for _, p := range set.pairs {
			x.pairs.Set(placeOf(p, set))
		}
	}
}

// replaceInIndexes replaces an identity by another with the same key. A set that both have
// stays in the index: it must not be dropped in between.
func (s *Scope) replaceInIndexes(old, id *identity) {
	if old.labels != nil || id.labels != nil {
		s.reindexSet(s.labels(), old.labels, id.labels, old, id)
	}
	if old.fields != nil || id.fields != nil {
		s.reindexSet(s.fields(), old.fields, id.fields, old, id)
	}
	if old.owners != nil && old.owners == id.owners {
		owners := s.owners()
		for _, o := range id.owners.owners {
			owners.Set(ownerRef{o.UID, id})
		}
		return
	}
	s.unindexOwners(old)
	s.indexOwners(id)
}

func (s *Scope) reindexSet(x *attrIndex, before, after *attrSet, old, id *identity) {
	if before == after {
		x.postings.Set(id)
		return
	}
	if before != nil {
		s.unindexSet(x, before, old)
	}
	if after != nil {
		s.indexSet(x, after, id)
	}
}

// removeFromIndexes removes an identity from the secondary indexes.
func (s *Scope) removeFromIndexes(id *identity) {
	if s.namespaces.drop(id.namespace) {
		s.root.bytes -= namespaceSize(id)
	}
	if id.labels != nil {
		s.unindexSet(s.labels(), id.labels, id)
	}
	if id.fields != nil {
		s.unindexSet(s.fields(), id.fields, id)
	}
	s.unindexOwners(id)
}

func (s *Scope) unindexOwners(id *identity) {
	if id.owners == nil {
		return
	}
	owners := s.owners()
	for _, o := range id.owners.owners {
		owners.Delete(ownerRef{o.UID, id})
	}
	if id.owners.users--; id.owners.odd || id.owners.users > 0 {
		return
	}
	s.uncharge(id.owners.size())
	s.interner().forgetOwners(id.owners)
}

func (s *Scope) unindexSet(x *attrIndex, set *attrSet, id *identity) {
	x.postings.Delete(id)
	if set.users--; set.users > 0 {
		return
	}
	for _, p := range set.pairs {
		x.pairs.Delete(placeOf(p, set))
	}
	s.uncharge(set.size())
	s.interner().forget(set)
}

// uncharge removes a set that no object has any more from the account. The next commit
// charges it to the change log: former versions keep it alive.
func (s *Scope) uncharge(bytes int64) {
	s.root.bytes -= bytes
	s.released += bytes
}
