package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unique"
)

// Loader fills an index, before anybody writes to it, with what an index of an earlier process
// had: objects keep their revisions, and readers that have seen revisions of that index go on
// with the changes since. Its members may be loaded at the same time, each by one goroutine.
type Loader struct {
	index *Index

	mu           sync.Mutex
	dictionaries map[DictionaryID]*Dictionary
	used         map[DictionaryID]map[Kind]bool
	dropped      map[Kind]bool
	members      map[string]*MemberLoader
	bridges      []*record
}

// Bridge has readers of revisions up to since go on with those after to, between which the index
// was loaded.
func (l *Loader) Bridge(since, to Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since < to {
		rec := bulkRecord(to-1, to, nil, 0)
		rec.since = since
		l.bridges = append(l.bridges, rec)
	}
}

// ErrNotEmpty is returned for an index that is to be loaded and that has been written.
var ErrNotEmpty = errors.New("the index is not empty")

// Load returns a loader.
func (x *Index) Load() *Loader {
	return &Loader{index: x, dictionaries: map[DictionaryID]*Dictionary{}, used: map[DictionaryID]map[Kind]bool{}, dropped: map[Kind]bool{}, members: map[string]*MemberLoader{}}
}

// Dictionary makes a dictionary known, by which bodies are decoded.
func (l *Loader) Dictionary(raw []byte) (*Dictionary, error) {
	e, err := newEncoder(slices.Clone(raw))
	if err != nil {
		return nil, errors.Join(ErrCorrupt, err)
	}
	d := e.small.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if have := l.dictionaries[d.id]; have != nil {
		return have, nil
	}
	l.dictionaries[d.id] = d
	return d, nil
}

func (l *Loader) dictionary(kind Kind, id DictionaryID) *Dictionary {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used[id] == nil {
		l.used[id] = map[Kind]bool{}
	}
	l.used[id][kind] = true
	return l.dictionaries[id]
}

// Used reports whether something was decoded by a dictionary, of a kind that was not dropped.
func (l *Loader) Used(id DictionaryID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range l.used[id] {
		if !l.dropped[kind] {
			return true
		}
	}
	return false
}

// MemberLoader loads one member.
type MemberLoader struct {
	loader  *Loader
	member  Member
	scopes  map[Kind]*ScopeLoader
	records []*record
	noted   []*ScopeLoader // with changes since the last commit

	past  map[Kind]*decoding // of what was before
	pasts []*Past
}

// Remove drops a member.
func (l *Loader) Remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, name)
}

// Member begins a member; one that was begun before is dropped.
func (l *Loader) Member(m Member) *MemberLoader {
	ml := &MemberLoader{loader: l, member: cloneMember(m), scopes: map[Kind]*ScopeLoader{}, past: map[Kind]*decoding{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members[m.Name] = ml
	return ml
}

// Set changes what is known of the member.
func (m *MemberLoader) Set(to Member) {
	to.Name = m.member.Name
	m.member = cloneMember(to)
}

// ScopeLoader loads one scope of a member.
type ScopeLoader struct {
	member   *MemberLoader
	scope    *Scope
	decoding decoding
	before   *scopeRoot // of a commit that reads it as another version
	noted    bool
}

// Scope returns the loader of a scope, which it begins where there is none, and whose objects are
// from here on of this version and resource.
func (m *MemberLoader) Scope(kind Kind, version, resource string) *ScopeLoader {
	as := unique.Make(heldAs{version, resource})
	s := m.scopes[kind]
	switch {
	case s == nil:
		s = &ScopeLoader{member: m, scope: m.loader.scope(m.member.Name, kind, as)}
		s.Reset()
		m.scopes[kind] = s
	case s.scope.id.as != as:
		s.note()
		if s.before == nil {
			_, s.before = s.scope.freeze()
		}
		s.scope.id = &scopeID{member: s.scope.member, kind: s.scope.kind, as: as}
		s.scope.root.scopeID, s.scope.target = s.scope.id, as
	}
	return s
}

// scope returns a writer that is not the index's yet.
func (l *Loader) scope(member string, kind Kind, as unique.Handle[heldAs]) *Scope {
	x := l.index
	codec := x.codecs.of(kind, x.fields[kind])
	s := &Scope{index: x, member: member, kind: codec.kind, codec: codec, target: as}
	s.id = &scopeID{member: member, kind: codec.kind, as: s.target}
	s.root = newRoot(s.id)
	return s
}

// Remove drops a scope with its objects. Until Commit it is a change.
func (m *MemberLoader) Remove(kind Kind) {
	s := m.scopes[kind]
	if s == nil {
		return
	}
	s.note()
	if s.before == nil {
		_, s.before = s.scope.freeze()
	}
	delete(m.scopes, kind)
}

// Reset begins with what another Encoder has written.
func (s *ScopeLoader) Reset() {
	s.decoding = decoding{scope: s.scope, dictionary: s.member.loader.dictionary}
}

// Has returns the loader of a scope, nil where there is none.
func (m *MemberLoader) Has(kind Kind) *ScopeLoader { return m.scopes[kind] }

// Drop drops a scope without a commit, as all members' of its kind are: what readers had of it cannot
// be continued.
func (m *MemberLoader) Drop(kind Kind) {
	if s := m.scopes[kind]; s != nil {
		delete(m.scopes, kind)
		m.loader.mu.Lock()
		defer m.loader.mu.Unlock()
		m.loader.dropped[kind] = true
	}
}

// Status returns the scope's status.
func (s *ScopeLoader) Status() Status { return s.scope.root.status }

// Resumable reports whether it is known how far the member had been read.
func (s *ScopeLoader) Resumable() bool { return len(s.scope.parts) > 0 }

// SetStatus sets the scope's status.
func (s *ScopeLoader) SetStatus(status Status) { s.scope.root.status = status }

// SetReached sets how far the member had been read. Parts must be sorted by namespace.
func (s *ScopeLoader) SetReached(parts []Part) { s.scope.parts = slices.Clone(parts) }

// Put decodes an object, adds it, and returns what comes after it. Until Commit it is a change.
func (s *ScopeLoader) Put(encoded []byte) (rest []byte, err error) {
	in := input{rest: encoded}
	e := s.decoding.next(&in)
	if in.err != nil {
		return nil, fmt.Errorf("scope %s of member %q: %w", s.scope.kind, s.scope.member, in.err)
	}
	s.note()
	s.scope.put(e)
	return in.rest, nil
}

// Delete removes an object.
func (s *ScopeLoader) Delete(namespace, name string) {
	s.note()
	s.scope.Delete(namespace, name)
}

func (s *ScopeLoader) note() {
	if !s.noted {
		s.noted = true
		s.member.noted = append(s.member.noted, s)
	}
}

// Settle ends what was there at first, which is no change. Commits that led to it are in the past.
func (m *MemberLoader) Settle() error {
	for _, s := range m.noted {
		s.settle()
	}
	m.noted = nil
	return m.rewind()
}

func (s *ScopeLoader) settle() {
	s.scope.changes, s.before, s.noted = nil, nil, false
	s.scope.takeReleased()
}

// Commit ends a commit, which had the revisions above from up to to, and was made on the
// state of since. Its changes have these revisions in their order.
func (m *MemberLoader) Commit(since, from, to Revision) error {
	if len(m.noted) > 1 {
		return fmt.Errorf("member %q: a commit of %d scopes: %w", m.member.Name, len(m.noted), ErrCorrupt)
	}
	rec, changes := memberRecord(from, to, m.member.Name, nil, 0), 0
	if len(m.noted) == 1 {
		s := m.noted[0]
		changes = len(s.scope.changes)
		rec = s.record(from, to)
		s.settle()
	}
	m.noted = nil
	if rec.since = since; to <= from || from < since || uint64(to-from) < uint64(changes) {
		return fmt.Errorf("member %q: a commit of revisions %d to %d on %d with %d changes: %w", m.member.Name, from, to, since, changes, ErrCorrupt)
	}
	m.records = append(m.records, rec)
	return nil
}

// record returns the record of the scope's changes.
func (s *ScopeLoader) record(from, to Revision) *record {
	if s.before == nil {
		return newRecord(from, to, s.scope.id, s.scope.takeChanges(), s.scope.takeReleased())
	}
	bulk := scopeChange{before: s.before}
	pinned := s.before.treesSize() + s.before.size()
	if s.member.scopes[s.scope.kind] == s {
		_, bulk.after = s.scope.freeze()
		_, _, pinned = compareRoots(s.before, bulk.after)
	}
	return bulkRecord(from, to, []scopeChange{bulk}, pinned)
}

// put is upsert of an entry that has its revision.
func (s *Scope) put(e *entry) {
	old, ok := s.root.objects.Get(e)
	reborn := ok && !sameUID(old.identity, e.identity)
	switch {
	case !ok:
		s.addToIndexes(e.identity)
	case !reborn && sameIndexed(old.identity, e.identity):
		e.identity = old.identity
	default:
		s.replaceInIndexes(old.identity, e.identity)
	}
	s.objects().Set(e)
	s.root.bytes += e.size()
	if ok {
		s.root.bytes -= old.size()
	}
	if reborn {
		s.changes = append(s.changes, change{before: old}, change{after: e})
	} else {
		s.changes = append(s.changes, change{before: old, after: e})
	}
}

// Finish makes what was loaded the state of the index, in one step. last is a revision up to
// which nothing is missing, 0 if there is none. Readers may go on from revisions up to the one
// that is returned, which is last or, where commits follow it without a gap, above; as far back
// as no commit is missing. It is 0 if they cannot go on from any.
func (l *Loader) Finish(last Revision) (Revision, error) {
	x := l.index
	x.codecs.training.Lock()
	defer x.codecs.training.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.newest.Load()
	if x.members.Len() > 0 || old.snapshot.changes > 0 {
		return 0, ErrNotEmpty
	}
	at, err := x.take(1)
	if err != nil {
		return 0, err
	}
	var log changeLog
	var known []Range
	if last > 0 {
		log, known = l.log(last)
	}
	for _, m := range l.members {
		x.load(m, at+1)
	}
	rec := bulkRecord(at, at+1, nil, 0)
	last = 0
	if len(known) > 0 {
		last = known[len(known)-1].End - 1
		rec.since = last
		x.loaded.Store(&known)
	}
	x.goOnWithDictionaries()
	x.checkTotals()
	p := x.published(&Snapshot{
		revision: rec.to, changes: 1, fields: x.fields, pivots: x.pivots,
		scopes: x.scopes.Copy(), members: x.members.Copy(), plurals: x.plurals.Copy(), shape: rec.to, totals: x.totals,
	}, log.add(rec, x.log))
	x.joined, x.renamed, x.reshaped = false, false, false
	x.newest.Store(p)
	if x.hold {
		close(old.later)
	}
	x.show(p) // it was written already
	return last, nil
}

// log returns the change log of what was loaded: the newest commits that follow each other without
// a gap, and the revisions from which readers can go on with it, ascending. There are none if what was
// loaded has commits beyond last that do not follow it.
func (l *Loader) log(last Revision) (log changeLog, known []Range) {
	all := slices.Clone(l.bridges)
	for _, m := range l.members {
		all = append(all, m.records...)
	}
	slices.SortFunc(all, func(a, b *record) int { return cmp.Compare(a.to, b.to) })
	if len(all) == 0 || all[len(all)-1].to < last {
		return changeLog{}, []Range{{last, last + 1}}
	}
	newest := all[len(all)-1].to
	first := len(all) - 1
	for first > 0 && all[first-1].to == all[first].since {
		first--
	}
	if all[first].since > last {
		return changeLog{}, nil
	}
	for _, r := range all[first:] {
		if log = log.add(r, l.index.log); r.cut {
			log.cuts = append(log.cuts, r)
		}
	}
	if log.start == log.end {
		return log, []Range{{newest, newest + 1}}
	}
	if since := log.at(log.start).since; since > 0 {
		known = []Range{{since, since + 1}}
	}
	for i := log.start; i < log.end; i++ {
		known = log.at(i).extend(known)
	}
	return log, known
}

// extend adds the revisions of a commit to ranges that end below. Those between it and the one before
// it were never issued, or by others.
func (r *record) extend(known []Range) []Range {
	if n := len(known); n > 0 && known[n-1].End == r.from+1 {
		known[n-1].End = r.to + 1
		return known
	}
	return append(known, Range{r.from + 1, r.to + 1})
}

// load adds a member that was loaded to the next snapshot. x.mu must be held.
func (x *Index) load(m *MemberLoader, at Revision) {
	root := &memberRoot{Member: m.member}
	for _, kind := range slices.Sorted(maps.Keys(m.scopes)) {
		s := m.scopes[kind].scope
		s.changes = nil
		s.takeReleased()
		_, scope := s.freeze()
		x.exchange(s.codec, scope, at)
		root.kinds = append(root.kinds, scope.kind)
	}
	x.members.Set(root)
}
