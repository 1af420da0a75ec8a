package aggregate

// link adds an identity to the secondary indexes, and what it shares with others to the
// account.
func (s *Scope) link(id *identity) {
	if s.namespaces.add(id.namespace) {
		s.root.bytes += namespaceSize(id)
	}
	s.linkSet(&s.root.labels, &s.touched.labels, id.labels, id)
	s.linkSet(&s.root.fields, &s.touched.fields, id.fields, id)
	s.linkOwners(id)
}

func namespaceSize(id *identity) int64 {
	return namespaceBytes + allocated(len(id.namespace.Value()))
}

func (s *Scope) linkOwners(id *identity) {
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

func (s *Scope) linkSet(x *attrIndex, touched *bool, set *attrSet, id *identity) {
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
	if s.namespaces.drop(id.namespace) {
		s.root.bytes -= namespaceSize(id)
	}
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
	if id.owners.odd || !s.owned.drop(id.owners) {
		return
	}
	s.letGo(id.owners.size())
	s.interned.forgetOwners(id.owners)
}

func (s *Scope) unlinkSet(x *attrIndex, touched *bool, set *attrSet, id *identity) {
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
	s.letGo(set.size())
	s.interned.forget(set)
}

// letGo takes a set that no object has any more out of the account. What is published
// next charges the change log with it: former versions keep it alive.
func (s *Scope) letGo(bytes int64) {
	s.root.bytes -= bytes
	s.released += bytes
}
