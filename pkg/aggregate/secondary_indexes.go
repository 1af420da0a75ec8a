package aggregate

// addToIndexes adds an identity to the secondary indexes, and its new shared sets to the
// account.
func (s *Scope) addToIndexes(id *identity) {
	if s.namespaces.add(id.namespace) {
		s.root.bytes += namespaceSize(id)
	}
	s.indexSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.indexSet(&s.root.fields, &s.touched.fields, id.fields, id)
	s.indexOwners(id)
}

func namespaceSize(id *identity) int64 {
	return namespaceBytes + allocated(len(id.namespace.Value()))
}

func (s *Scope) indexOwners(id *identity) {
	if id.owners == nil {
		return
	}
	if !id.owners.odd && s.owned.add(id.owners) {
		s.root.bytes += id.owners.size()
	}
	s.touched.owners = true
	for _, o := range id.owners.owners {
		s.root.owners.Set(ownerRef{o.UID, id})
	}
}

func (s *Scope) indexSet(x *attrIndex, touched *bool, set *attrSet, id *identity) {
	if set == nil {
		return
	}
	*touched = true
	x.postings.Set(id)
	if s.sets.add(set) {
		s.root.bytes += set.size()
		for _, p := range set.pairs {
			x.pairs.Set(placeOf(p, set))
		}
	}
}

// replaceInIndexes replaces an identity by another with the same key. A set that both have
// stays in the index: it must not be dropped in between.
func (s *Scope) replaceInIndexes(old, id *identity) {
	s.reindexSet(&s.root.labels, &s.touched.labels, old.labels, id.labels, old, id)
	s.reindexSet(&s.root.fields, &s.touched.fields, old.fields, id.fields, old, id)
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
	s.unindexOwners(old)
	s.indexOwners(id)
}

func (s *Scope) reindexSet(x *attrIndex, touched *bool, before, after *attrSet, old, id *identity) {
	if before != nil && before == after {
		*touched = true
		x.postings.Set(id)
		return
	}
	s.unindexSet(x, touched, before, old)
	s.indexSet(x, touched, after, id)
}

// removeFromIndexes removes an identity from the secondary indexes.
func (s *Scope) removeFromIndexes(id *identity) {
	if s.namespaces.drop(id.namespace) {
		s.root.bytes -= namespaceSize(id)
	}
	s.unindexSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.unindexSet(&s.root.fields, &s.touched.fields, id.fields, id)
	s.unindexOwners(id)
}

func (s *Scope) unindexOwners(id *identity) {
	if id.owners == nil {
		return
	}
	s.touched.owners = true
	for _, o := range id.owners.owners {
		s.root.owners.Delete(ownerRef{o.UID, id})
	}
	if id.owners.odd || !s.owned.drop(id.owners) {
		return
	}
	s.uncharge(id.owners.size())
	s.interned.forgetOwners(id.owners)
}

func (s *Scope) unindexSet(x *attrIndex, touched *bool, set *attrSet, id *identity) {
	if set == nil {
		return
	}
	*touched = true
	x.postings.Delete(id)
	if !s.sets.drop(set) {
		return
	}
	for _, p := range set.pairs {
		x.pairs.Delete(placeOf(p, set))
	}
	s.uncharge(set.size())
	s.interned.forget(set)
}

// uncharge removes a set that no object has any more from the account. The next commit
// charges it to the change log: former versions keep it alive.
func (s *Scope) uncharge(bytes int64) {
	s.root.bytes -= bytes
	s.released += bytes
}
