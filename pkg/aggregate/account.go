package aggregate

import (
	"maps"
	"slices"
)

// The content of the index is accounted in bytes of the heap, as Go allocates them on 64-bit
// machines. A place is an item of a tree with its share of the nodes, which are about two
// thirds full.
const (
	entryBytes     = 32 + 64 + 24 // entry, identity and body
	pointerPlace   = 18           // an entry, or an identity
	pairPlaceBytes = 22
	ownerPlace     = 50
	mapSlot        = 28 // of a map from one pointer, with its share of the groups

	attrSetBytes   = 64 + 40 // by content
	ownerSetBytes  = 80 + 40
	namespaceBytes = 160 + mapSlot // in addition to its characters: once per process

	scopeBytes   = 190 // a scope without objects
	objectsBytes = 100 // its tree of objects, once it has some
	indexesBytes = 350 // its indexes, once an object is in one, and the sets that its writer keeps
	writerBytes  = 240 // of an open one
	memberBytes  = 200
	codecBytes   = 400       // of a kind
	sampleBytes  = 200       // of a sample, in addition to its bytes
	encoderCost  = 640 << 10 // a dictionary in its three forms
)

// allocated returns the size of the heap allocation for n bytes.
func allocated(n int) int64 {
	switch {
	case n <= 256:
		return int64(n+15) &^ 15
	case n <= 32<<10:
		return int64(n + n>>4)
	}
	return int64(n+8<<10-1) &^ (8<<10 - 1)
}

// size returns the heap bytes of an object without the sets that it shares.
func (e *entry) size() int64 { return e.identity.size() + e.body.Load().size() + entryBytes }

func (b *body) size() int64 { return allocated(len(b.data)) }

// size returns the heap bytes of an identity and of its places.
func (id *identity) size() int64 {
	n := allocated(len(id.name)) + pointerPlace
	if id.labels != nil {
		n += pointerPlace
	}
	if id.fields != nil {
		n += pointerPlace
	}
	if id.owners != nil {
		n += int64(len(id.owners.owners)) * ownerPlace
		if id.owners.odd {
			n += id.owners.size() // shared with none
		}
	}
	return n
}

// size returns the heap bytes of a set, those of its pairs in the index included.
func (s *attrSet) size() int64 {
	if s == nil {
		return 0
	}
	const label = 32
	return attrSetBytes + allocated(label*len(s.pairs)) + allocated(len(s.text)) + int64(len(s.pairs))*pairPlaceBytes
}

func (s *ownerSet) size() int64 {
	if s == nil {
		return 0
	}
	const owner = 72
	return ownerSetBytes + allocated(owner*len(s.owners)) + allocated(len(s.text))
}

// treesSize returns the heap bytes of a scope's trees without their items. Empty ones are
// shared.
func (r *scopeRoot) treesSize() (n int64) {
	if r.objects != noObjects {
		n += objectsBytes
	}
	if r.indexes != noIndexes {
		n += indexesBytes
	}
	return n
}

// keptBytes returns the bytes that a change keeps alive and that no tree has any more,
// without the sets: those are released with their last user.
func (c change) keptBytes() int64 {
	if c.before == nil {
		return 0
	}
	const versionBytes = 32 + 24
	n := versionBytes + c.before.body.Load().size()
	if c.after == nil || c.after.identity != c.before.identity {
		const identityBytes = 64
		n += identityBytes + allocated(len(c.before.name))
		if o := c.before.owners; o != nil && o.odd {
			n += o.size()
		}
	}
	return n
}

// Account is what an index costs in heap bytes, estimated.
type Account struct {
	Scopes int64 // objects, their indexes, and the scopes and members themselves
	Log    int64 // former objects that only the change log keeps alive
	Codecs int64 // dictionaries, and samples for the first of each kind
}

// Total returns the sum.
func (a Account) Total() int64 { return a.Scopes + a.Log + a.Codecs }

// Account returns what the index costs. Snapshots and cursors of readers also keep alive
// what was removed since they were taken, which is not included.
func (x *Index) Account() Account {
	p := x.current.Load()
	a := Account{Log: p.log.bytes + p.log.pinned, Scopes: int64(p.snapshot.members.Len()) * memberBytes}
	p.snapshot.scopes.Scan(func(r *scopeRoot) bool {
		a.Scopes += scopeBytes + r.treesSize() + r.size()
		return true
	})
	x.mu.Lock()
	a.Scopes += int64(x.open) * writerBytes
	x.mu.Unlock()
	a.Codecs = x.codecs.size()
	return a
}

// shrinking is a map that releases memory, which Go's own maps never do, and that costs next
// to nothing while it has few entries, as in most scopes. The zero value is empty.
type shrinking[K comparable, V any] struct {
	few  []slot[K, V] // while there are no more than fewSlots
	of   map[K]V      // nil until there are more
	most int          // maximum size of the map since it was made
}

type slot[K comparable, V any] struct {
	key   K
	value V
}

const fewSlots = 8

// at returns the place of a key among the few, -1 if it is not there.
func (m *shrinking[K, V]) at(k K) int {
	for i := range m.few {
		if m.few[i].key == k {
			return i
		}
	}
	return -1
}

func (m *shrinking[K, V]) get(k K) (v V, ok bool) {
	if m.of != nil {
		v, ok = m.of[k]
		return v, ok
	}
	if i := m.at(k); i >= 0 {
		return m.few[i].value, true
	}
	return v, false
}

func (m *shrinking[K, V]) set(k K, v V) {
	if m.of == nil {
		if i := m.at(k); i >= 0 {
			m.few[i].value = v
			return
		}
		if len(m.few) < fewSlots {
			m.few = append(m.few, slot[K, V]{k, v})
			return
		}
		m.of = make(map[K]V, fewSlots+1)
		for _, s := range m.few {
			m.of[s.key] = s.value
		}
		m.few = nil
	}
	m.of[k] = v
	m.most = max(m.most, len(m.of))
}

func (m *shrinking[K, V]) delete(k K) {
	if m.of == nil {
		if i := m.at(k); i >= 0 {
			m.few = slices.Delete(m.few, i, i+1)
		}
		return
	}
	const least = 64
	delete(m.of, k)
	switch {
	case len(m.of) <= fewSlots/2:
		for k, v := range m.of {
			m.few = append(m.few, slot[K, V]{k, v})
		}
		m.of, m.most = nil, 0
	case m.most >= least && len(m.of) < m.most/2:
		next := make(map[K]V, len(m.of))
		maps.Copy(next, m.of)
		m.of, m.most = next, len(next)
	}
}

// tally counts users of things. The zero value is empty.
type tally[K comparable] struct{ shrinking[K, int32] }

// add reports whether the user is the first.
func (t *tally[K]) add(k K) bool {
	n, _ := t.get(k)
	t.set(k, n+1)
	return n == 0
}

// drop reports whether the user was the last.
func (t *tally[K]) drop(k K) bool {
	if n, _ := t.get(k); n > 1 {
		t.set(k, n-1)
		return false
	}
	t.delete(k)
	return true
}
