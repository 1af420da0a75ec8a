package aggregate

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Options configure an Index.
type Options struct {
	// Revisions are used by commits, until Extend adds more. A tool whose index has no other
	// readers may use any block, such as Block(1).
	Revisions Range
	// LogBytes bounds the memory that the change log keeps alive: for single changes and,
	// separately, for bulk ones. 0 means 64 MiB.
	LogBytes int64
	// Fields are the declared fields of each kind, as dotted paths; List can select by them.
	Fields map[Kind][]string
	// Hold keeps commits from readers until Release shows them: whoever writes them to disk
	// does so first.
	Hold bool
}

const defaultLogBytes = 64 << 20

// Index is the aggregate index. Its methods are safe for concurrent use;
// readers never wait for writers.
type Index struct {
	log     int64
	fields  map[Kind][]fieldPath
	codecs  *codecs
	pivots  *sync.Pool // of *pivot; the runtime holds pools for a while, so none is part of the index
	buffers *sync.Pool // of *buffers
	hold    bool
	current atomic.Pointer[published] // what readers get
	newest  atomic.Pointer[published] // what the next commit is based on; written under mu

	ranges    atomic.Pointer[[]Range] // ascending, at least one; written under mu
	loaded    atomic.Pointer[[]Range] // revisions of earlier processes from which readers may go on
	exhausted chan struct{}

	// mu serialises publishing. It guards the trees that the next snapshot copies, and the
	// writers.
	mu       sync.Mutex
	scopes   *btree.BTreeG[*scopeRoot]
	members  *btree.BTreeG[*memberRoot]
	joined   bool // members was modified since it was published
	plurals  *btree.BTreeG[plurals]
	renamed  bool             // plurals was modified since it was published
	counts   map[pluralOf]int // of scopes
	reshaped bool             // the next snapshot differs in more than objects
	totals   totals           // of scopes
	spent    bool             // exhausted is closed
	open     int              // scopes with a writer
}

// published is what a reader gets by one atomic load.
type published struct {
	snapshot *Snapshot
	log      changeLog
	next     chan struct{} // closed when readers get a newer one
	later    chan struct{} // closed when there is a newer one; nil unless commits are held
}

type scopeKey struct {
	member string
	kind   Kind
}

// New returns an empty index.
func New(opts Options) (*Index, error) {
	if err := opts.Revisions.check(); err != nil {
		return nil, err
	}
	if opts.LogBytes < 0 {
		return nil, fmt.Errorf("aggregate: Options.LogBytes is %d, must not be negative", opts.LogBytes)
	}
	if opts.LogBytes == 0 {
		opts.LogBytes = defaultLogBytes
	}
	codecs, err := newCodecs()
	if err != nil {
		return nil, err
	}
	x := &Index{
		log:       opts.LogBytes,
		hold:      opts.Hold,
		fields:    make(map[Kind][]fieldPath, len(opts.Fields)),
		codecs:    codecs,
		scopes:    newTree(lessScope),
		members:   newTree(lessMember),
		plurals:   newTree(lessPlurals),
		counts:    map[pluralOf]int{},
		pivots:    &sync.Pool{New: func() any { return newPivot() }},
		buffers:   &sync.Pool{New: func() any { return &buffers{} }},
		exhausted: make(chan struct{}),
	}
	x.ranges.Store(&[]Range{opts.Revisions})
	x.loaded.Store(&[]Range{})
	for kind, names := range opts.Fields {
		if len(names) > maxFields {
			return nil, fmt.Errorf("aggregate: Options.Fields[%q]: %d fields, at most %d", kind, len(names), maxFields)
		}
		for _, n := range names {
			if n == "" || strings.HasPrefix(n, ".") || strings.HasSuffix(n, ".") || strings.Contains(n, "..") {
				return nil, fmt.Errorf("aggregate: Options.Fields[%q]: %q is not a dotted path", kind, n)
			}
		}
		x.fields[kind] = splitFields(names)
	}
	first := x.published(&Snapshot{revision: opts.Revisions.First, fields: x.fields, pivots: x.pivots, scopes: x.scopes.Copy(), members: x.members.Copy(), plurals: x.plurals.Copy()}, changeLog{})
	x.newest.Store(first)
	x.current.Store(first)
	return x, nil
}

// Snapshot returns the newest state that readers may see: one atomic load.
func (x *Index) Snapshot() *Snapshot { return x.current.Load().snapshot }

// Newer returns a channel that is closed once there is a state newer than s.
func (x *Index) Newer(s *Snapshot) <-chan struct{} {
	p := x.current.Load()
	if p.snapshot.revision != s.revision {
		return closedChan
	}
	return p.next
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// publish makes the present trees the newest state. Its order is the proof that readers see
// a commit entirely or not at all: the record is written to a slot that no reader's log
// covers, then one store publishes snapshot and log together, then waiters are notified.
// x.mu must be held.
func (x *Index) publish(rec *record) {
	x.checkTotals()
	old := x.newest.Load()
	members := old.snapshot.members
	if x.joined {
		members, x.joined = x.members.Copy(), false
	}
	plurals := old.snapshot.plurals
	if x.renamed {
		plurals, x.renamed = x.plurals.Copy(), false
	}
	shape := old.snapshot.shape
	if x.reshaped {
		shape, x.reshaped = rec.to, false
	}
	rec.since = old.snapshot.revision
	p := x.published(&Snapshot{
		revision: rec.to, changes: old.snapshot.changes + uint64(rec.to-rec.from), fields: x.fields, pivots: x.pivots,
		scopes: x.scopes.Copy(), members: members, plurals: plurals, shape: shape, totals: x.totals,
	}, old.log.add(rec, x.log))
	x.newest.Store(p)
	if x.hold {
		close(old.later)
		return
	}
	x.show(p)
}

func (x *Index) published(s *Snapshot, log changeLog) *published {
	p := &published{snapshot: s, log: log, next: make(chan struct{})}
	if x.hold {
		p.later = make(chan struct{})
	}
	return p
}

// show makes a state the one that readers get. x.mu must be held.
func (x *Index) show(p *published) { close(x.current.Swap(p).next) }

// setMember adds a member to the next snapshot. x.mu must be held.
func (x *Index) setMember(m *memberRoot) {
	x.members.Set(m)
	x.joined, x.reshaped = true, true
}

// PutMember adds or updates a member, in one commit, or none when nothing changed. If
// another member, with another UID, has the name, the error is ErrIdentity: the old one must
// be removed first. ErrExhausted is possible.
func (x *Index) PutMember(m Member) error {
	if m.Name == "" {
		return fmt.Errorf("aggregate: a member must have a name")
	}
	m = cloneMember(m)
	slices.SortFunc(m.Labels, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	slices.SortFunc(m.Cluster.Annotations, func(a, b Label) int { return strings.Compare(a.Key, b.Key) })
	slices.SortFunc(m.Cluster.Conditions, func(a, b Condition) int { return strings.Compare(a.Type, b.Type) })
	x.mu.Lock()
	defer x.mu.Unlock()
	next := &memberRoot{Member: m}
	held, ok := x.members.Get(next)
	if ok {
		if held.UID != m.UID {
			return fmt.Errorf("member %q: %w (uid %s, not %s)", m.Name, ErrIdentity, held.UID, m.UID)
		}
		if equalMembers(held.Member, m) {
			return nil
		}
		next.Name, next.kinds = held.Name, held.kinds // one copy of the text
	}
	at, err := x.take(1)
	if err != nil {
		return fmt.Errorf("member %q: %w", m.Name, err)
	}
	x.setMember(next)
	rec := memberRecord(at, at+1, next.Name, nil, 0)
	if rec.members = (&[2]*Member{1: &next.Member}); ok {
		rec.members[0] = &held.Member
		rec.bytes += memberSize(&held.Member)
	}
	x.publish(rec)
	return nil
}

// RemoveMember removes a member with all its scopes and objects, in one commit. Its writers
// get ErrClosed. It reports whether the member existed and was removed: it stays when the
// index is exhausted.
func (x *Index) RemoveMember(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	m, ok := x.members.Get(&memberRoot{Member: Member{Name: name}})
	if !ok {
		return false
	}
	var bulk []scopeChange
	revisions, pinned := Revision(1), int64(0)
	for _, kind := range m.kinds {
		if root, ok := x.scopes.Get(pivotScope(name, kind)); ok {
			bulk = append(bulk, scopeChange{before: root})
			revisions += Revision(root.objects.Len())
			pinned += root.treesSize() + root.size()
		}
	}
	at, err := x.take(uint64(revisions))
	if err != nil {
		return false
	}
	x.members.Delete(m)
	x.joined, x.reshaped = true, true
	for _, b := range bulk {
		x.drop(b.before)
		x.setWriter(b.before.scopeID, nil)
	}
	rec := memberRecord(at, at+revisions, m.Name, bulk, pinned)
	rec.left, rec.members = true, &[2]*Member{&m.Member}
	x.publish(rec)
	return true
}

// Holds reports whether the index was made with Options.Hold.
func (x *Index) Holds() bool { return x.hold }

// Newest returns the newest state, of which readers may see only the part that was released.
// It is for those who write the index, and for who releases it.
func (x *Index) Newest() *Snapshot { return x.newest.Load().snapshot }

// Pending is what was committed and is not released.
type Pending struct {
	index *Index
	from  Revision
	last  *published
}

// Pending returns what was committed after a state, and a channel that is closed once there
// is more.
func (x *Index) Pending(after *Snapshot) (Pending, <-chan struct{}) {
	p := x.newest.Load()
	return Pending{index: x, from: after.revision, last: p}, p.later
}

// Snapshot returns the state after all that is pending.
func (p Pending) Snapshot() *Snapshot { return p.last.snapshot }

// Release shows readers all that is pending. What was released meanwhile stays: a state that
// readers have never makes way for an older one.
func (p Pending) Release() {
	x := p.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current.Load().snapshot.revision < p.last.snapshot.revision {
		x.show(p.last)
	}
}

// Commit is one commit of one member: the revisions above From, up to To. It was made on the
// state of revision Since, which is From unless a range of revisions ended between them.
type Commit struct {
	Since, From, To Revision
	Member          string
	Kind            Kind // "" where it is not about a scope, but the member itself
	Left            bool // the member left

	record *record
}

// Commits yields what is pending, in its order; of one that is Lost it is known whose it is, and no
// more. It reports false when the change log does not reach back to all of it any more: the states
// before and after are then what is left to compare.
func (p Pending) Commits() (iter.Seq[Commit], bool) {
	log := p.last.log
	from, ok := log.since(p.from, p.last.snapshot.revision)
	if !ok {
		return nil, false
	}
	return func(yield func(Commit) bool) {
		for i := from; i < log.end; i++ {
			if !yield(log.at(i).commit()) {
				return
			}
		}
	}, true
}

func (r *record) commit() Commit {
	c := Commit{Since: r.since, From: r.from, To: r.to, Member: r.member, Left: r.left, record: r}
	switch {
	case r.member != "":
	case r.scope != nil:
		c.Member, c.Kind = r.scope.member, r.scope.kind
	case len(r.bulk) == 1:
		id := r.bulk[0].scope()
		c.Member, c.Kind = id.member, id.kind
	}
	return c
}

// Changes yields the changes of objects in their order: none where a commit changed the status
// of a scope, or a member.
func (c Commit) Changes() iter.Seq[Change] {
	return func(yield func(Change) bool) { c.record.each(yield) }
}

// Scope returns the scope after the commit, as far as the change log knows: what its objects
// were read as. It reports false for one that was removed.
func (c Commit) Scope() (version, resource string, ok bool) {
	id := c.record.scope
	if len(c.record.bulk) == 1 {
		after := c.record.bulk[0].after
		if after == nil {
			return "", "", false
		}
		id = after.scopeID
	}
	if id == nil {
		return "", "", false
	}
	return id.version(), id.resource(), true
}
