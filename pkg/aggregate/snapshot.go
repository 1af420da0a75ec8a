package aggregate

import (
	"iter"
	"sync"

	"github.com/tidwall/btree"
)

// Snapshot is an immutable state of the entire index. It costs nothing to take and keeps its
// content alive; any number of goroutines may use it.
type Snapshot struct {
	revision Revision
	changes  uint64 // revisions taken since the index was made
	shape    Revision
	totals   totals
	fields   map[Kind][]fieldPath
	scopes   *btree.BTreeG[*scopeRoot]  // by kind, then member
	members  *btree.BTreeG[*memberRoot] // by name
	plurals  *btree.BTreeG[plurals]     // by kind
	pivots   *sync.Pool                 // of the index
}

// Object is an object in a snapshot. The zero Object is none.
type Object struct {
	scope *scopeID
	e     *entry
}

// IsZero reports whether there is no object.
func (o Object) IsZero() bool { return o.e == nil }

// Ref returns the object's reference in the fleet.
func (o Object) Ref() Ref {
	return Ref{Member: o.scope.member, Kind: o.scope.kind, Namespace: o.Namespace(), Name: o.e.name}
}

// Member returns the name of the member that has the object.
func (o Object) Member() string { return o.scope.member }

// Namespace returns the object's namespace, "" when it is cluster-scoped.
func (o Object) Namespace() string { return o.e.namespace.Value() }

// Name returns the object's name.
func (o Object) Name() string { return o.e.name }

// UID returns the object's UID as the member wrote it.
func (o Object) UID() string { return o.e.uidString() }

// ResourceVersion returns the member's own resourceVersion of the object.
func (o Object) ResourceVersion() string { return o.e.rvString() }

// SameVersion reports whether the object has a UID and resourceVersion, as UID and
// ResourceVersion return them.
func (o Object) SameVersion(uid, resourceVersion string) bool {
	return o.e.sameVersion(uid, resourceVersion)
}

// Revision returns the revision of the object's last change.
func (o Object) Revision() Revision { return o.e.revision }

// APIVersion returns the version that the object is held at, e.g. "apps/v1".
func (o Object) APIVersion() string { return o.scope.version() }

// Resource returns the plural that the object was read under, as ScopeInfo has it.
func (o Object) Resource() string { return o.scope.resource() }

// Labels returns the object's labels, sorted by key. The slice is shared and
// must not be changed.
func (o Object) Labels() []Label { return o.e.labels.list() }

// Label returns the value of a label.
func (o Object) Label(key string) (string, bool) { return o.e.labels.Lookup(key) }

// Field returns the value of a declared field as the index holds it. ok is false for a field
// that is absent, null, not a scalar, escaped in JSON, or not declared for the kind: see the
// body.
func (o Object) Field(name string) (value string, ok bool) {
	value, ok = o.e.fields.Lookup(name)
	if !ok || value == listed {
		return "", false
	}
	return value, true
}

// Owners returns the object's owners. The slice is shared and must not be
// changed.
func (o Object) Owners() []Owner { return o.e.ownerList() }

// AppendBody appends the object's canonical JSON (see Record.Body).
func (o Object) AppendBody(dst []byte) ([]byte, error) {
	return o.e.body.Load().decode(dst)
}

// Size estimates the heap bytes that the object would cost by itself, including sets of
// labels, fields and owners that it shares with others.
func (o Object) Size() int64 {
	n := o.e.size() + o.e.labels.size() + o.e.fields.size()
	if o.e.owners != nil && !o.e.owners.odd {
		n += o.e.owners.size()
	}
	return n
}

// Revision returns the snapshot's revision.
func (s *Snapshot) Revision() Revision { return s.revision }

// Changes returns how many revisions the index had used: unlike the difference of two
// revisions, that of two such numbers is the number of changes between them.
func (s *Snapshot) Changes() uint64 { return s.changes }

// Shape returns the revision of the last change of anything but objects: of members, and of
// which scopes there are, their states and versions. It is the same for snapshots that differ
// in objects only.
func (s *Snapshot) Shape() Revision { return s.shape }

// Size returns the number of objects, and an estimate of their heap bytes.
func (s *Snapshot) Size() (objects int, bytes int64) { return s.totals.objects, s.totals.bytes }

// Member returns what is known of a member. Its slices must not be changed.
func (s *Snapshot) Member(name string) (Member, bool) {
	m, ok := s.members.Get(&memberRoot{Member: Member{Name: name}})
	if !ok {
		return Member{}, false
	}
	return m.Member, true
}

// Members yields all members by name. Their slices must not be changed.
func (s *Snapshot) Members() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		s.members.Scan(func(m *memberRoot) bool { return yield(m.Member) })
	}
}

// MembersFrom is Members that starts at a name, of a member or not.
func (s *Snapshot) MembersFrom(name string) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		s.members.Ascend(&memberRoot{Member: Member{Name: name}}, func(m *memberRoot) bool { return yield(m.Member) })
	}
}

// ScopeInfo describes one scope in a snapshot.
type ScopeInfo struct {
	Member  string
	Kind    Kind
	Version string // API version that the scope is held at, e.g. "apps/v1"
	// Resource is the plural that the member served the objects under when they were read,
	// e.g. "deployments", which may have changed since; "" when not known.
	Resource string
	Status   Status
	Objects  int
	Bytes    int64 // heap bytes of the objects and their indexes, estimated
}

func (r *scopeRoot) info() ScopeInfo {
	return ScopeInfo{
		Member: r.member, Kind: r.kind, Version: r.version(), Resource: r.resource(), Status: r.status,
		Objects: r.objects.Len(), Bytes: r.size(),
	}
}

// Scope returns one scope. For one that has not been opened ok is false; it is NotServed if
// its member is known not to serve the kind, else Unknown.
func (s *Snapshot) Scope(member string, kind Kind) (info ScopeInfo, ok bool) {
	if r, ok := s.scope(member, kind); ok {
		return r.info(), true
	}
	info = ScopeInfo{Member: member, Kind: kind}
	if m, ok := s.members.Get(&memberRoot{Member: Member{Name: member}}); ok && m.lacks(kind) {
		info.Status.State = NotServed
	}
	return info, false
}

func (s *Snapshot) scope(member string, kind Kind) (*scopeRoot, bool) {
	p := s.pivots.Get().(*pivot)
	defer s.pivots.Put(p)
	return s.scopes.Get(p.in(member, kind))
}

// Scopes yields the scopes of one member by kind or, when member is "", all
// scopes by kind, then member.
func (s *Snapshot) Scopes(member string) iter.Seq[ScopeInfo] {
	return func(yield func(ScopeInfo) bool) {
		if member == "" {
			s.scopes.Scan(func(r *scopeRoot) bool { return yield(r.info()) })
			return
		}
		m, ok := s.members.Get(&memberRoot{Member: Member{Name: member}})
		if !ok {
			return
		}
		for _, kind := range m.kinds {
			if r, ok := s.scope(member, kind); ok && !yield(r.info()) {
				return
			}
		}
	}
}

// KindsOf returns the kinds that a member has scopes of, in order. The slice is shared and
// must not be changed.
func (s *Snapshot) KindsOf(member string) []Kind {
	m, ok := s.members.Get(&memberRoot{Member: Member{Name: member}})
	if !ok {
		return nil
	}
	return m.kinds
}

// Kinds yields the kinds that have a scope in any member, in order. It seeks from kind to
// kind, whatever the number of scopes.
func (s *Snapshot) Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		p := newPivot()
		for next, more := Kind(""), true; more; {
			more = false
			s.scopes.Ascend(p.in("", next), func(r *scopeRoot) bool {
				next, more = r.kind+"\x00", yield(r.kind) // the least string that is greater
				return false
			})
		}
	}
}

// ChangedOf returns the revision of the last change of objects of a kind, but for changes of
// scopes that are no longer there.
func (s *Snapshot) ChangedOf(kind Kind) (last Revision) {
	for r := range s.kindScopes(kind, "") {
		last = max(last, r.changed)
	}
	return last
}

// kindScopes yields the scopes of a kind by member, starting at a member.
func (s *Snapshot) kindScopes(kind Kind, from string) iter.Seq[*scopeRoot] {
	return func(yield func(*scopeRoot) bool) {
		s.scopes.Ascend(pivotScope(from, kind), func(r *scopeRoot) bool {
			return r.kind == kind && yield(r)
		})
	}
}

// Get returns one object.
func (s *Snapshot) Get(ref Ref) (Object, bool) {
	p := s.pivots.Get().(*pivot)
	defer s.pivots.Put(p)
	r, ok := s.scopes.Get(p.in(ref.Member, ref.Kind))
	if !ok {
		return Object{}, false
	}
	return r.get(p.at(ref.Namespace, ref.Name))
}

func (r *scopeRoot) get(pivot *entry) (Object, bool) {
	e, ok := r.objects.Get(pivot)
	if !ok {
		return Object{}, false
	}
	return Object{r.scopeID, e}, true
}

// Named yields the objects of one namespace and name in all members, by
// member.
func (s *Snapshot) Named(kind Kind, namespace, name string) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		k := newPivot().at(namespace, name)
		for r := range s.kindScopes(kind, "") {
			if o, ok := r.get(k); ok && !yield(o) {
				return
			}
		}
	}
}

// Owned yields the objects of a kind that have an owner with this UID, by member, namespace
// and name. member "" means all: UIDs are unique in a fleet, but a restored member may share
// them with the one it was restored from.
func (s *Snapshot) Owned(kind Kind, member, uid string) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for r := range s.kindScopes(kind, member) {
			if member != "" && r.member != member {
				return
			}
			if !r.owned(uid, yield) {
				return
			}
		}
	}
}

func (r *scopeRoot) owned(uid string, yield func(Object) bool) bool {
	more := true
	pivot := &entry{}
	r.owners.Ascend(ownerRef{uid: uid, identity: firstKey}, func(o ownerRef) bool {
		if o.uid != uid {
			return false
		}
		pivot.identity = o.identity
		obj, ok := r.get(pivot)
		more = !ok || yield(obj)
		return more
	})
	return more
}

// diffTrees yields the objects that differ between two roots, by key, in one
// walk over both; nil is an empty root.
func diffTrees(before, after *scopeRoot, yield func(change) bool) {
	switch {
	case before != nil && after != nil && before.objects == after.objects:
	case before == nil && after == nil:
	case before == nil:
		after.objects.Scan(func(e *entry) bool { return yield(change{after: e}) })
	case after == nil:
		before.objects.Scan(func(e *entry) bool { return yield(change{before: e}) })
	default:
		diffOrdered(before.objects, after.objects, lessEntry, func(b, a *entry) bool { return yield(change{b, a}) })
	}
}
