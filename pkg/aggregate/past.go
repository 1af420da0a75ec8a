package aggregate

import (
	"fmt"
	"slices"
	"unique"
)

// History returns the newest commits of a member up to a revision, in their order, as far as the
// change log has them all and they keep no more than so many bytes alive.
func (x *Index) History(member string, upTo Revision, bytes int64) (out []Commit) {
	log := x.newest.Load().log
	for i := log.end - 1; i >= log.start; i-- {
		c := log.at(i).commit()
		if c.Member != member || c.To > upTo {
			continue
		}
		if bytes -= c.record.bytes + c.record.pinned; bytes < 0 || c.Left {
			break
		}
		out = append(out, c)
	}
	slices.Reverse(out)
	return out
}

// Lost reports whether the change log does not have the changes of the commit any more.
func (c Commit) Lost() bool { return c.record.cut }

// Cut reports whether the change log does not have the changes of the commit, or cannot give
// them back once it has been written.
func (c Commit) Cut() bool {
	if c.record.cut {
		return true
	}
	b := c.record.bulk
	return len(b) == 1 && b[0].before != nil && b[0].after != nil && b[0].before.as != b[0].after.as
}

// Status returns the status of the scope before and after the commit, and whether the commit changed it. A
// scope that the commit made was Unknown.
func (c Commit) Status() (before, after Status, changed bool) {
	if c.record.status == nil {
		return Status{}, Status{}, false
	}
	return c.record.status[0], c.record.status[1], true
}

// Net reports whether the commit is of a list, or of a scope or member that left: its changes are what differs
// between before and after, and what was in between is not known.
func (c Commit) Net() bool { return c.record.bulk != nil || c.record.cut }

// Members returns the member before and after a commit about itself, nil where it was or is not there. The commits of an
// earlier process do not have them.
func (c Commit) Members() (before, after *Member) {
	if m := c.record.members; m != nil {
		return m[0], m[1]
	}
	return nil, nil
}

// Past is a commit before what was loaded of a member: what it changed is undone to know what was
// before it.
type Past struct {
	member   *MemberLoader
	decoding *decoding
	id       *scopeID
	changes  []pastChange
	record   *record
}

// pastChange is a change of which it is known what was before it.
type pastChange struct {
	before *entry // nil: it was added
	key    *identity
	gone   bool // it was deleted
}

// Past begins a commit that led to what was loaded, after those that were begun before.
func (m *MemberLoader) Past(kind Kind, version, resource string) *Past {
	s := m.past[kind]
	if s == nil {
		s = &decoding{scope: m.loader.scope(m.member.Name, kind, unique.Make(heldAs{version, resource})), dictionary: m.loader.dictionary}
		if held := m.scopes[kind]; held != nil {
			s.scope.interned.Store(held.scope.interner())
		}
		m.past[kind] = s
	}
	id := s.scope.id
	if id.version() != version || id.resource() != resource {
		id = &scopeID{member: id.member, kind: id.kind, as: unique.Make(heldAs{version, resource})}
	}
	return &Past{member: m, decoding: s, id: id}
}

// Added notes that an object was added.
func (p *Past) Added(namespace, name string) {
	p.changes = append(p.changes, pastChange{key: key(namespace, name)})
}

// Before decodes what an object was before it was changed or deleted, and returns what comes
// after it.
func (p *Past) Before(encoded []byte, deleted bool) (rest []byte, err error) {
	in := input{rest: encoded}
	e := p.decoding.next(&in)
	if in.err != nil {
		return nil, fmt.Errorf("scope %s of member %q: %w", p.id.kind, p.id.member, in.err)
	}
	p.changes = append(p.changes, pastChange{before: e, key: e.identity, gone: deleted})
	return in.rest, nil
}

// End ends the commit; cut says that its changes are not known.
func (p *Past) End(since, from, to Revision, cut bool) error {
	if to <= from || from < since || uint64(to-from) < uint64(len(p.changes)) {
		return fmt.Errorf("member %q: a commit of revisions %d to %d on %d with %d changes: %w", p.id.member, from, to, since, len(p.changes), ErrCorrupt)
	}
	p.record = &record{from: from, to: to, since: since, scope: p.id, bytes: recordOverhead, cut: cut}
	p.member.pasts = append(p.member.pasts, p)
	return nil
}

// PastOfMember is a commit that changed what is known of the member.
func (m *MemberLoader) PastOfMember(since, from, to Revision) error {
	if to <= from || from < since {
		return fmt.Errorf("member %q: a commit of revisions %d to %d on %d: %w", m.member.Name, from, to, since, ErrCorrupt)
	}
	r := memberRecord(from, to, m.member.Name, nil, 0)
	r.since = since
	m.pasts = append(m.pasts, &Past{record: r})
	return nil
}

// rewind makes records of the commits before what was loaded: from the last to the first, what is
// there after a change is what is there before the next change of the object.
func (m *MemberLoader) rewind() error {
	type place struct {
		kind Kind
		key  identity
	}
	after := map[place]*entry{}
	for _, p := range slices.Backward(m.pasts) {
		for i := len(p.changes) - 1; i >= 0; i-- {
			c := p.changes[i]
			at := place{p.id.kind, identity{namespace: c.key.namespace, name: c.key.name}}
			now, known := after[at]
			if held := m.scopes[p.id.kind]; !known && held != nil {
				now, _ = held.scope.root.objects.Get(&entry{identity: c.key})
			}
			after[at] = c.before
			if (now == nil) != c.gone {
				return fmt.Errorf("member %q: %s %s/%s is there after revision %d: %t: %w", m.member.Name, p.id.kind, c.key.namespace.Value(), c.key.name, p.record.to, now != nil, ErrCorrupt)
			}
			p.record.changes = append(p.record.changes, change{before: c.before, after: now})
		}
		slices.Reverse(p.record.changes)
		for _, c := range p.record.changes {
			p.record.bytes += changeOverhead + c.keptBytes()
		}
	}
	for _, p := range m.pasts {
		m.records = append(m.records, p.record)
	}
	m.pasts, m.past = nil, map[Kind]*decoding{}
	return nil
}
