package aggregate

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"unique"
)

// Scope is the writer of one scope. Its methods but Item, Held and Size belong to one
// goroutine, which may differ from the one that calls Item.
type Scope struct {
	index    *Index
	member   string
	kind     Kind
	codec    *kindCodec
	interned atomic.Pointer[interner] // nil until an item has labels, fields or owners
	foreign  atomic.Bool              // since the last commit bodies have come with dictionaries of other processes

	// mu guards all fields below. Only Train and RemoveMember contend for it.
	mu      sync.Mutex
	closed  bool
	stale   bool // the objects are of another API version or resource, until Replace
	dirty   bool
	touched touched
	id      *scopeID              // as published last
	target  unique.Handle[heldAs] // of new items
	root    scopeRoot             // the next root: its trees are private once touched
	last    *scopeRoot            // as published last; trees not touched since are shared with it
	changes []change
	parts   []Part // how far the next root reaches; immutable
	moved   bool   // parts is not recorded yet
	stated  bool   // Reached was called since the last commit

	namespaces tally[unique.Handle[string]] // of the objects
	released   int64                        // bytes of the sets that were released since the scope was published
}

// buffers are what a scope uses while it is called, and the index keeps in between: most
// scopes are idle.
type buffers struct {
	compared [2][]byte // bodies
	encoded  []byte
	set      []byte // as in the interner
	pairs    []Label
}

// maxBuffer bounds each of the buffers that are kept.
const maxBuffer = 64 << 10

// release returns buffers to the index.
func (b *buffers) release(x *Index) {
	for _, buf := range []*[]byte{&b.compared[0], &b.compared[1], &b.encoded, &b.set} {
		if cap(*buf) > maxBuffer {
			*buf = nil
		}
	}
	clear(b.pairs)
	x.buffers.Put(b)
}

// interner returns the scope's sets.
func (s *Scope) interner() *interner {
	if t := s.interned.Load(); t != nil {
		return t
	}
	s.interned.CompareAndSwap(nil, &interner{})
	return s.interned.Load()
}

// Item is an object encoded for one scope, and not yet added to it.
type Item struct {
	e    *entry
	sets int64 // bytes of the sets that it introduced
}

// OpenScope is OpenScopeAs without the resource under which the member serves the kind.
func (x *Index) OpenScope(member string, kind Kind, version string) (*Scope, error) {
	return x.OpenScopeAs(member, kind, version, "")
}

// OpenScopeAs makes the caller the writer of a scope of a member in the index, with objects
// at an API version such as "apps/v1", read under a resource such as "deployments". A scope
// that was closed is reopened unchanged; if its objects are of another version or resource,
// they stay until the first Replace, which replaces them all and must precede any Upsert.
func (x *Index) OpenScopeAs(member string, kind Kind, version, resource string) (*Scope, error) {
	s := &Scope{index: x, member: member, kind: kind, target: unique.Make(heldAs{version, resource})}
	s.mu.Lock()
	defer s.mu.Unlock()
	root, err := x.register(s)
	if err != nil {
		return nil, err
	}
	if root != nil {
		// The scope has no other writer any more, so x.mu is not needed here.
		s.adopt(root)
	}
	return s, nil
}

// register makes s the writer of its scope. It returns the root of an earlier writer, or
// creates and publishes an empty one. s.mu must be held, so that Train waits until s is
// ready.
func (x *Index) register(s *Scope) (*scopeRoot, error) {
	member, kind := s.member, s.kind
	x.mu.Lock()
	defer x.mu.Unlock()
	m, ok := x.members.Get(&memberRoot{Member: Member{Name: member}})
	if !ok {
		return nil, s.fail(ErrNoMember)
	}
	s.codec = x.codecs.of(kind, x.fields[kind]) // under x.mu: Train drops those of kinds without a scope
	s.member, s.kind = m.Name, s.codec.kind     // one copy of the text
	if root, ok := x.scopes.Get(pivotScope(member, kind)); ok {
		if root.writer != nil {
			return nil, s.fail(ErrScopeOpen)
		}
		x.setWriter(root.scopeID, s)
		return root, nil
	}
	at, err := x.take(1)
	if err != nil {
		return nil, s.fail(err)
	}
	s.id = &scopeID{member: s.member, kind: s.kind, as: s.target}
	s.root = newRoot(s.id)
	_, root := s.freeze()
	x.setWriter(s.id, s)
	x.setMember(m.with(s.kind))
	x.exchange(s.codec, root, at+1)
	x.publish(newRecord(at, at+1, s.id, nil, 0))
	return nil, nil
}

// adopt continues with the root of an earlier writer, which is closed and writes no more.
func (s *Scope) adopt(root *scopeRoot) {
	s.id, s.last, s.root = root.scopeID, root, *root
	if s.stale = s.id.as != s.target; !s.stale {
		s.parts = root.reach.list()
	}
	if root.objects.Len() == 0 {
		return
	}
	// The earlier writer may have counted what it never published.
	root.objects.Scan(func(e *entry) bool {
		e.identity.unused()
		return true
	})
	s.root.bytes = 0
	root.objects.Scan(func(e *entry) bool {
		s.root.bytes += e.size() + s.use(e.identity)
		return true
	})
}

// unused resets the numbers of users of an identity's sets.
func (id *identity) unused() {
	for _, set := range []*attrSet{id.labels, id.fields} {
		if set != nil {
			set.users = 0
		}
	}
	if id.owners != nil {
		id.owners.users = 0
	}
}

// use counts an identity of an earlier writer as a user of its sets, and returns the bytes of
// those that had none.
func (s *Scope) use(id *identity) (bytes int64) {
	if s.namespaces.add(id.namespace) {
		bytes += namespaceSize(id)
	}
	for _, set := range []*attrSet{id.labels, id.fields} {
		if set == nil {
			continue
		}
		if set.users++; set.users == 1 {
			bytes += set.size()
		}
	}
	if o := id.owners; o != nil {
		if o.users++; o.users == 1 && !o.odd {
			bytes += o.size()
		}
	}
	if id.labels != nil || id.fields != nil || id.owners != nil {
		s.interner().adopt(id)
	}
	return bytes
}

// Item encodes a record for the scope, without adding it. It may be called concurrently with
// the writer's other methods, from one goroutine at a time.
func (s *Scope) Item(rec *Record) Item {
	id := &identity{namespace: unique.Make(rec.Namespace), name: strings.Clone(rec.Name)}
	e := &entry{identity: id}
	item := Item{e: e}
	buf := s.index.buffers.Get().(*buffers)
	defer buf.release(s.index)
	set := func(space byte, pairs []Label) *attrSet {
		if len(pairs) == 0 {
			return nil
		}
		set, fresh := s.interner().set(&buf.set, space, pairs)
		if fresh {
			item.sets += set.size()
		}
		return set
	}
	id.labels = set(labelSpace, rec.Labels)
	uid, okUID := parseUID(rec.UID)
	rv, okRV := parseRV(rec.ResourceVersion)
	id.uid, e.rv = uid, rv
	switch {
	case !okUID || !okRV:
		id.owners = oddOwners(rec.Owners, rec.UID, rec.ResourceVersion)
	case len(rec.Owners) > 0:
		var fresh bool
		if id.owners, fresh = s.interner().ownerSet(&buf.set, rec.Owners); fresh {
			item.sets += id.owners.size()
		}
	}
	if len(s.codec.declared) > 0 {
		buf.pairs = fieldValues(buf.pairs[:0], rec.Body, s.codec.declared)
		id.fields = set(fieldSpace, buf.pairs)
	}
	var b *body
	ref := Ref{Member: s.member, Kind: s.kind, Namespace: rec.Namespace, Name: rec.Name}
	b, buf.encoded = s.codec.encode(ref, rec.Body, buf.encoded, rec.Update)
	e.body.Store(b)
	return item
}

// Key returns the item's namespace and name.
func (i Item) Key() (namespace, name string) { return i.e.namespace.Value(), i.e.name }

// UID returns the item's UID as the member wrote it.
func (i Item) UID() string { return i.e.uidString() }

// ResourceVersion returns the item's resourceVersion as the member wrote it.
func (i Item) ResourceVersion() string { return i.e.rvString() }

// Size returns the heap bytes that holding the item costs, estimated. Sets of labels, fields
// and owners that the scope already has cost nothing more.
func (i Item) Size() int64 { return i.e.size() + i.sets }

// Held returns the item of an object that the scope holds at exactly the version and with
// the content of a record, so that a relist need not encode it again. It reads only key,
// version and body of the record.
func (s *Scope) Held(rec *Record) (Item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale {
		return Item{}, false
	}
	p := s.index.pivots.Get().(*pivot)
	defer s.index.pivots.Put(p)
	e, ok := s.root.objects.Get(p.at(rec.Namespace, rec.Name))
	if !ok || !e.sameVersion(rec.UID, rec.ResourceVersion) {
		return Item{}, false
	}
	buf := s.index.buffers.Get().(*buffers)
	defer buf.release(s.index)
	if !bytes.Equal(buf.decoded(e, 0), rec.Body) {
		return Item{}, false
	}
	return Item{e: e}, true
}

// decoded returns the body of an entry until the next call with the same buffer;
// nil where it cannot be decoded.
func (b *buffers) decoded(e *entry, buffer int) []byte {
	body, err := e.body.Load().decode(b.compared[buffer][:0])
	if err != nil {
		return nil
	}
	b.compared[buffer] = body
	return body
}

// sameContent reports whether two versions of one object with the same resourceVersion have
// the same content. A member's defaults and conversions may change what it serves without a
// write to the object.
func (s *Scope) sameContent(a, b *entry) bool {
	buf := s.index.buffers.Get().(*buffers)
	defer buf.release(s.index)
	return bytes.Equal(buf.decoded(a, 0), buf.decoded(b, 1))
}

// Size returns the number of objects that the scope holds and their heap bytes, estimated,
// with their indexes, including uncommitted changes.
func (s *Scope) Size() (objects int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root.objects.Len(), s.root.bytes
}

// Upsert adds or updates an object at the next Commit, and returns the position of that among the changes that it will publish, from 1. An item
// with the version in the index changes nothing, which is 0.
func (s *Scope) Upsert(item Item) (position int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0 // another writer may continue with the sets
	}
	before := len(s.changes)
	if s.upsert(item.e, true); len(s.changes) == before {
		return 0
	}
	return len(s.changes)
}

// Pending returns the number of changes by Upsert and Delete since the last commit. Commit gives the last of them the
// revision that it returns, and those before it the revisions before it, in order.
func (s *Scope) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.changes)
}

// upsert adds an entry to the private trees. With note it becomes an individual change in
// the log; another UID is a delete and an add. Without, as for a list, different content at
// the version in the index is accepted, too.
func (s *Scope) upsert(e *entry, note bool) {
	old, ok := s.root.objects.Get(e)
	if ok && (old == e || !s.stale && old.rv != oddRV && old.rv == e.rv && sameUID(old.identity, e.identity) && (note || s.sameContent(old, e))) {
		return
	}
	if e.revision != 0 {
		e = e.fresh() // the entry was in the scope before, and is in snapshots
	}
	e.revision = taken
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
	s.dirty = true
	switch {
	case !note:
	case reborn:
		s.changes = append(s.changes, change{before: old}, change{after: e})
	default:
		s.changes = append(s.changes, change{before: old, after: e})
	}
}

// sameIndexed reports whether two versions of one object have the same indexed part.
// Identities with odd values are never shared: they hold the version.
func sameIndexed(a, b *identity) bool {
	return a.labels == b.labels && a.fields == b.fields && a.owners == b.owners
}

// Delete removes an object at the next Commit, if it exists, and returns the position of that, as Upsert does.
func (s *Scope) Delete(namespace, name string) (position int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0
	}
	p := s.index.pivots.Get().(*pivot)
	defer s.index.pivots.Put(p)
	old, ok := s.remove(p.at(namespace, name))
	if !ok {
		return 0
	}
	s.changes = append(s.changes, change{before: old})
	return len(s.changes)
}

func (s *Scope) remove(pivot *entry) (*entry, bool) {
	if _, ok := s.root.objects.Get(pivot); !ok {
		return nil, false
	}
	old, _ := s.objects().Delete(pivot)
	s.removeFromIndexes(old.identity)
	s.root.bytes -= old.size()
	s.dirty = true
	return old, true
}
