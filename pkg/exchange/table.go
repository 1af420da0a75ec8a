package exchange

import (
	"maps"
	"slices"
	"sort"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// memberSum is what is exported of a member: hashes, and frames of what is short.
type memberSum struct {
	uid    string
	frame  []byte
	hash   uint64
	full   uint64 // the sequence since which it is there
	scopes map[aggregate.Kind]*scopeSum
}

// digest returns the number of records, and the digest of all.
func (m *memberSum) digest() wire.End {
	end := wire.End{Digest: m.hash}
	for _, s := range m.scopes {
		end.Records += len(s.sum.Records)
		end.Digest += wire.Digest(s.info, s.sum.Total)
	}
	return end
}

type scopeSum struct {
	version, resource string
	frame             []byte
	info              uint64
	failed            bool // it is not exported
	sum               wire.Sum
	replaced          uint64 // the sequence since which its records are others
	changed           uint64 // the sequence of the last change
}

// same reports whether nothing is to be told of another sum.
func (s *scopeSum) same(o *scopeSum) bool {
	return s.info == o.info && s.failed == o.failed && s.sum.Total == o.sum.Total && len(s.sum.Records) == len(o.sum.Records)
}

// entry is the newest change of one key. Entries that are superseded have no key.
type entry struct {
	sequence uint64
	key      aggregate.Ref
	gone     bool   // a record
	frame    []byte // of a record; nil: it is made again
}

func (e *entry) bytes() int64 {
	const fixed = 2 * (8 + 4*16 + 8 + 24) // with its place in the map
	return int64(fixed + len(e.key.Namespace) + len(e.key.Name) + len(e.frame))
}

// table is what is exported, at a sequence, and how it came to that. A change of one key supersedes the one before, so that
// an importer that resumes is told of each key once, and what it is now.
type table struct {
	export   Export
	sequence uint64
	revision aggregate.Revision
	members  map[string]*memberSum
	changed  chan struct{} // closed at the next sequence

	limit   int64
	bytes   int64
	log     []entry // by sequence; the first is number base
	base    int
	dead    int
	at      map[aggregate.Ref]int // numbers of entries
	floor   uint64                // the log has all changes after this sequence
	records int
}

func newTable(limit int64) table {
	return table{members: map[string]*memberSum{}, changed: make(chan struct{}), limit: limit, at: map[aggregate.Ref]int{}}
}

// publish makes an export with its updates the newest.
func (t *table) publish(now Export, updates []update) {
	first := t.export == nil
	t.export, t.revision = now, now.Revision()
	if len(updates) == 0 && !first {
		return
	}
	t.sequence++
	for i := range updates {
		t.apply(&updates[i])
	}
	if first {
		t.floor = t.sequence // nobody has what was before
	}
	t.trim()
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *table) apply(u *update) {
	e := entry{sequence: t.sequence, key: u.key}
	m := t.members[u.key.Member]
	switch {
	case u.key.Kind == "":
		t.applyMember(u, m)
	case u.key.Name == "":
		t.applyScope(u, m)
	default:
		s := m.scopes[u.key.Kind]
		before := len(s.sum.Records)
		s.sum.Put(wire.Key(u.key.Namespace, u.key.Name), u.hash)
		t.records += len(s.sum.Records) - before
		s.changed = t.sequence
		e.gone, e.frame = u.gone, u.frame
	}
	t.append(e)
}

func (t *table) applyMember(u *update, m *memberSum) {
	count := func(m *memberSum) int {
		if m == nil {
			return 0
		}
		return m.digest().Records
	}
	switch {
	case u.gone:
		t.records -= count(m)
		delete(t.members, u.key.Member)
	case u.member != nil:
		t.records += count(u.member) - count(m)
		u.member.full = t.sequence
		for _, s := range u.member.scopes {
			s.replaced, s.changed = t.sequence, t.sequence
		}
		t.members[u.key.Member] = u.member
	default:
		m.frame, m.hash = u.frame, wire.Hash(u.frame)
	}
}

func (t *table) applyScope(u *update, m *memberSum) {
	old := m.scopes[u.key.Kind]
	if u.frame != nil {
		old.frame, old.info, old.changed = u.frame, wire.ScopeHash(u.frame), t.sequence
		return
	}
	if old != nil {
		t.records -= len(old.sum.Records)
	}
	if u.gone {
		delete(m.scopes, u.key.Kind)
		return
	}
	t.records += len(u.scope.sum.Records)
	u.scope.replaced, u.scope.changed = t.sequence, t.sequence
	m.scopes[u.key.Kind] = u.scope
}

func (t *table) append(e entry) {
	if i, ok := t.at[e.key]; ok {
		t.bury(i - t.base)
	}
	t.at[e.key] = t.base + len(t.log)
	t.log = append(t.log, e)
	t.bytes += e.bytes()
}

// bury removes an entry that is superseded, or leaves.
func (t *table) bury(i int) {
	e := &t.log[i]
	t.bytes -= e.bytes()
	delete(t.at, e.key)
	t.log[i] = entry{sequence: e.sequence}
	t.dead++
}

// trim keeps the log within its bound: what leaves cannot be resumed from.
func (t *table) trim() {
	n := 0
	for n < len(t.log) && (t.bytes > t.limit || t.log[n].key == aggregate.Ref{}) {
		if t.log[n].key != (aggregate.Ref{}) {
			t.floor = t.log[n].sequence
			t.bury(n)
		}
		n++
	}
	t.dead -= n
	t.log, t.base = slices.Delete(t.log, 0, n), t.base+n
	if t.dead <= len(t.log)/2 || t.dead < 1024 {
		return
	}
	t.log = slices.DeleteFunc(t.log, func(e entry) bool { return e.key == aggregate.Ref{} })
	t.dead = 0
	for i := range t.log {
		t.at[t.log[i].key] = t.base + i
	}
}

// batch is what a stream tells next: all of one sequence.
type batch struct {
	export   Export
	sequence uint64
	revision aggregate.Revision
	state    bool
	asked    asked // by the importer, when it has been told
	gone     []string
	sections []section // by member
}

// section is what a batch has of a member.
type section struct {
	member string
	full   bool
	frame  []byte // what is known of it; nil: that has not changed
	scopes []scopeSection
	end    wire.End // of all that there is

	// For who does not ask for everything.
	quiet bool // nothing has changed
	hash  uint64
	all   []scopeInfo // that there are
}

// scopeInfo is what is said of a scope.
type scopeInfo struct {
	kind   aggregate.Kind
	frame  []byte
	info   uint64
	failed bool
}

type scopeSection struct {
	kind    aggregate.Kind
	frame   []byte // nil: it is gone
	replace bool
	failed  bool // it has no records that could be told
	records []entry
}

// ask names what an importer wants to be told again.
type ask struct {
	member string
	kind   aggregate.Kind // "": all of it
}

// batchAfter returns what is to be told to an importer that has all up to a sequence, nil if that is nothing.
func (t *table) batchAfter(since uint64, resumed bool, again []ask) *batch {
	b := &batch{export: t.export, sequence: t.sequence, revision: t.revision, state: !resumed}
	if b.state {
		for name, m := range t.members {
			b.sections = append(b.sections, m.section(name, true))
		}
		b.sort()
		return b
	}
	touched := t.touched(since, again)
	if len(touched) == 0 {
		return nil
	}
	for name, kinds := range touched {
		m := t.members[name]
		if m == nil {
			b.gone = append(b.gone, name)
			continue
		}
		_, all := kinds[""]
		s := m.section(name, m.full > since || all && kinds[""].replace)
		if !s.full {
			s.scopes = m.touched(kinds, since)
			if !all {
				s.frame = nil
			}
		}
		b.sections = append(b.sections, s)
	}
	b.sort()
	return b
}

// complete adds what is told of besides who does not ask for everything: all scopes of each member, and where it asks for other
// keys now, all members.
func (t *table) complete(b *batch, others bool) {
	for i := range b.sections {
		t.members[b.sections[i].member].complete(&b.sections[i])
	}
	if !others || b.state {
		return
	}
	have := make(map[string]bool, len(b.sections))
	for i := range b.sections {
		have[b.sections[i].member] = true
	}
	for name, m := range t.members {
		if !have[name] {
			s := section{member: name, end: m.digest(), quiet: true}
			m.complete(&s)
			b.sections = append(b.sections, s)
		}
	}
	b.sort()
}

func (m *memberSum) complete(s *section) {
	s.hash = m.hash
	s.all = make([]scopeInfo, 0, len(m.scopes))
	for kind, sum := range m.scopes {
		s.all = append(s.all, scopeInfo{kind, sum.frame, sum.info, sum.failed})
	}
}

// touch is what has changed of a scope; that of kind "" is about the member.
type touch struct {
	replace bool
	records []entry
}

func (t *table) touched(since uint64, again []ask) map[string]map[aggregate.Kind]*touch {
	out := map[string]map[aggregate.Kind]*touch{}
	at := func(member string, kind aggregate.Kind) *touch {
		if out[member] == nil {
			out[member] = map[aggregate.Kind]*touch{}
		}
		if out[member][kind] == nil {
			out[member][kind] = &touch{}
		}
		return out[member][kind]
	}
	first := sort.Search(len(t.log), func(i int) bool { return t.log[i].sequence > since })
	for _, e := range t.log[first:] {
		switch {
		case e.key == aggregate.Ref{}:
		case e.key.Name == "":
			at(e.key.Member, e.key.Kind)
		default:
			c := at(e.key.Member, e.key.Kind)
			c.records = append(c.records, e)
		}
	}
	for _, a := range again {
		at(a.member, a.kind).replace = true
	}
	return out
}

func (m *memberSum) section(name string, full bool) section {
	s := section{member: name, full: full, frame: m.frame, end: m.digest()}
	if !full {
		return s
	}
	for _, kind := range slices.Sorted(maps.Keys(m.scopes)) {
		sum := m.scopes[kind]
		s.scopes = append(s.scopes, scopeSection{kind: kind, frame: sum.frame, replace: true, failed: sum.failed})
	}
	return s
}

// touched returns the scopes of a member that have changed.
func (m *memberSum) touched(kinds map[aggregate.Kind]*touch, since uint64) (out []scopeSection) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if kind == "" {
			continue
		}
		sum := m.scopes[kind]
		if sum == nil {
			out = append(out, scopeSection{kind: kind})
			continue
		}
		s := scopeSection{kind: kind, frame: sum.frame, replace: sum.replaced > since || kinds[kind].replace, failed: sum.failed}
		if !s.replace {
			s.records = kinds[kind].records
		}
		out = append(out, s)
	}
	return out
}

func (b *batch) sort() {
	slices.Sort(b.gone)
	slices.SortFunc(b.sections, func(a, c section) int {
		if a.member < c.member {
			return -1
		}
		return 1
	})
}

// resumable reports whether the log has all changes after a sequence.
func (t *table) resumable(since uint64) bool {
	return t.export != nil && since >= t.floor && since <= t.sequence
}
