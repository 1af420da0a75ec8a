package aggregate

import (
	"bytes"
	"strings"
	"sync"
	"unique"
)

// Scope is the writer of one scope. Its methods but Item, Held and Size belong to one
// goroutine, which may differ from the one that calls Item.
type Scope struct {
	index    *Index
	member   string
	kind     Kind
	codec    *kindCodec
	declared []fieldPath
	interned *interner

	// mu guards all fields below. Only Train and RemoveMember contend for it.
	mu      sync.Mutex
	closed  bool
	stale   bool // the objects are of another API version or resource, until Replace
	id      *scopeID
	target  heldAs     // of new items
	root    scopeRoot  // the next root: its trees are private
	last    *scopeRoot // as published last; trees not touched since are shared with it
	touched touched
	dirty   bool
	changes []change
	pivot   *pivot

	// Sets shared by identities, with reference counts.
	sets       tally[*attrSet]
	owned      tally[*ownerSet]
	namespaces tally[unique.Handle[string]]
	released   int64 // bytes of the sets that were released since the scope was published

	compared [2][]byte // bodies

	scratch []byte // Item's
	pairs   []Label
}

// Item is an object encoded for one scope, and not yet added to it.
type Item struct {
	e    *entry
	sets int64 // bytes of the sets that it introduced
}

// heldAs is the version and resource that the objects of a scope are read as.
type heldAs struct{ version, resource string }

// OpenScope is OpenScopeAs without the resource under which the member serves the kind.
func (x *Index) OpenScope(member string, kind Kind, version string) (*Scope, error) {
	return x.OpenScopeAs(member, kind, version, "")
}

// OpenScopeAs makes the caller the writer of a scope of a member in the index, with objects
// at an API version such as "apps/v1", read under a resource such as "deployments". A scope
// that was closed is reopened unchanged; if its objects are of another version or resource,
// they stay until the first Replace, which replaces them all and must precede any Upsert.
func (x *Index) OpenScopeAs(member string, kind Kind, version, resource string) (*Scope, error) {
	s := &Scope{
		index: x, member: member, kind: kind, declared: x.fields[kind], interned: newInterner(),
		sets: newTally[*attrSet](), owned: newTally[*ownerSet](), namespaces: newTally[unique.Handle[string]](),
		target: heldAs{version, resource}, pivot: newPivot(), id: &scopeID{member: member, kind: kind, version: version, resource: resource},
	}
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
	k := scopeKey{member, kind}
	if x.writers[k] != nil {
		return nil, s.fail(ErrScopeOpen)
	}
	s.codec = x.codecs.of(kind) // under x.mu: Train drops those of kinds without a scope
	if root, ok := x.scopes.Get(pivotScope(member, kind)); ok {
		x.writers[k] = s
		return root, nil
	}
	at, err := x.take(1)
	if err != nil {
		return nil, s.fail(err)
	}
	x.writers[k] = s
	s.root = newRoot(s.id)
	_, root := s.freeze()
	x.setMember(m.with(kind))
	root.changed = at + 1
	x.scopes.Set(root)
	x.count(kind, s.id.resource, 1)
	x.publish(x.current.Load(), newRecord(at, at+1, s.id, nil, 0))
	return nil, nil
}

// adopt continues with the root of an earlier writer. The published trees are copied by
// walking them, never by Copy, which writes to its receiver.
func (s *Scope) adopt(root *scopeRoot) {
	s.id = root.scopeID
	s.stale = heldAs{s.id.version, s.id.resource} != s.target
	s.root = newRoot(s.id)
	s.root.status, s.root.recoded = root.status, root.recoded
	root.objects.Scan(func(e *entry) bool {
		s.interned.adopt(e.identity)
		s.root.objects.Load(e)
		s.root.bytes += e.size()
		s.addToIndexes(e.identity)
		return true
	})
	s.last, s.touched = root, touched{}
}

// Item encodes a record for the scope, without adding it. It may be called concurrently with
// the writer's other methods, from one goroutine at a time.
func (s *Scope) Item(rec *Record) Item {
	id := &identity{namespace: unique.Make(rec.Namespace), name: strings.Clone(rec.Name)}
	e := &entry{identity: id}
	item := Item{e: e}
	set := func(space byte, pairs []Label) *attrSet {
		set, fresh := s.interned.set(space, pairs)
		if fresh {
			item.sets += set.size()
		}
		return set
	}
	id.labels = set(labelSpace, rec.Labels)
	uid, okUID := parseUID(rec.UID)
	rv, okRV := parseRV(rec.ResourceVersion)
	id.uid, e.rv = uid, rv
	if okUID && okRV {
		var fresh bool
		if id.owners, fresh = s.interned.ownerSet(rec.Owners); fresh {
			item.sets += id.owners.size()
		}
	} else {
		id.owners = oddOwners(rec.Owners, rec.UID, rec.ResourceVersion)
	}
	if len(s.declared) > 0 {
		s.pairs = fieldValues(s.pairs[:0], rec.Body, s.declared)
		id.fields = set(fieldSpace, s.pairs)
	}
	var b *body
	ref := Ref{Member: s.member, Kind: s.kind, Namespace: rec.Namespace, Name: rec.Name}
	b, s.scratch = s.codec.encode(ref, rec.Body, s.scratch, rec.Update)
	s.scratch = keep(s.scratch)
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
	e, ok := s.root.objects.Get(s.pivot.at(rec.Namespace, rec.Name))
	if !ok || s.stale || !e.sameVersion(rec.UID, rec.ResourceVersion) || !bytes.Equal(s.decoded(e, 0), rec.Body) {
		return Item{}, false
	}
	return Item{e: e}, true
}

// maxDecoded bounds the buffers that a scope keeps for comparing contents.
const maxDecoded = 64 << 10

// decoded returns the body of an entry until the next call with the same buffer;
// nil where it cannot be decoded. s.mu must be held.
func (s *Scope) decoded(e *entry, buffer int) []byte {
	body, err := e.body.Load().decode(s.compared[buffer][:0])
	if err != nil {
		return nil
	}
	if s.compared[buffer] = body; cap(body) > maxDecoded {
		s.compared[buffer] = nil
	}
	return body
}

// sameContent reports whether two versions of one object with the same resourceVersion have
// the same content. A member's defaults and conversions may change what it serves without a
// write to the object. s.mu must be held.
func (s *Scope) sameContent(a, b *entry) bool {
	return bytes.Equal(s.decoded(a, 0), s.decoded(b, 1))
}

// Size returns the number of objects that the scope holds and their heap bytes, estimated,
// with their indexes, including uncommitted changes.
func (s *Scope) Size() (objects int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root.objects.Len(), s.root.bytes
}

// Upsert adds or updates an object at the next Commit. An item with the version in the index
// changes nothing.
func (s *Scope) Upsert(item Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upsert(item.e, true)
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
	s.root.objects.Set(e)
	s.touched.objects = true
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

// Delete removes an object at the next Commit, if it exists.
func (s *Scope) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.remove(s.pivot.at(namespace, name)); ok {
		s.changes = append(s.changes, change{before: old})
	}
}

func (s *Scope) remove(pivot *entry) (*entry, bool) {
	old, ok := s.root.objects.Delete(pivot)
	if !ok {
		return nil, false
	}
	s.removeFromIndexes(old.identity)
	s.touched.objects = true
	s.root.bytes -= old.size()
	s.dirty = true
	return old, true
}
