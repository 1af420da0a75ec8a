package sim

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// An item is one object at one resourceVersion; it never changes. Exactly one of
// raw and source is set.
type item struct {
	key    string // namespace/name, or name alone for cluster-scoped kinds
	rv     uint64
	raw    []byte // protobuf message of a built-in kind, else JSON without apiVersion and kind
	source Source
	index  int32
	size   atomic.Int32 // bytes as protobuf of an object from source, once it is known
}

// An event is one committed change. cur is nil for a deletion, prev for a creation.
type event struct {
	rv        uint64
	cur, prev *item
}

// A table holds one kind's objects and recent history. The member's mutex guards it.
type table struct {
	kindCodec
	objects   btree.Map[string, *item]
	events    []event // oldest first
	first     uint64  // sequence number of events[0]
	compacted uint64  // history reaches every change newer than this resourceVersion
	window    int     // most events kept
	changed   chan struct{}
	drop      chan struct{} // closed when the watches must end
	removed   bool
}

func newTable(k Kind, window int, rv uint64) *table {
	return &table{
		kindCodec: newKindCodec(k), window: window, compacted: rv,
		changed: make(chan struct{}), drop: make(chan struct{}),
	}
}

// commit puts the change into effect and wakes the watches.
func (t *table) commit(ev event) {
	if ev.cur != nil {
		t.objects.Set(ev.cur.key, ev.cur)
	} else {
		t.objects.Delete(ev.prev.key)
	}
	t.events = append(t.events, ev)
	// Evicting a quarter at a time keeps the cost of a commit constant on average.
	if len(t.events) > t.window+t.window/4 {
		t.evict(len(t.events) - t.window)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *table) evict(n int) {
	if n == 0 {
		return
	}
	t.compacted = t.events[n-1].rv
	t.first += uint64(n)
	t.events = slices.Clone(t.events[n:])
}

// compact forgets the history: older resourceVersions than rv are 410.
func (t *table) compact(rv uint64) {
	t.evict(len(t.events))
	t.compacted = max(t.compacted, rv)
}

func (t *table) dropWatches() {
	close(t.drop)
	t.drop = make(chan struct{})
}

// seqAfter is the sequence number of the first event newer than rv.
func (t *table) seqAfter(rv uint64) uint64 {
	i, _ := slices.BinarySearchFunc(t.events, rv+1, func(e event, rv uint64) int { return cmp.Compare(e.rv, rv) })
	return t.first + uint64(i)
}

// at is the content as of rv, which must not be older than t.compacted. The caller
// owns the copy and may read it without the lock.
func (t *table) at(rv uint64) *btree.Map[string, *item] {
	m := t.objects.Copy()
	for i := len(t.events) - 1; i >= 0 && t.events[i].rv > rv; i-- {
		if ev := t.events[i]; ev.prev != nil {
			m.Set(ev.prev.key, ev.prev)
		} else {
			m.Delete(ev.cur.key)
		}
	}
	return m
}

// rewind makes the content that of rv, and forgets what came after. Watches end.
func (t *table) rewind(rv uint64) {
	t.objects = *t.at(rv)
	kept := 0
	for kept < len(t.events) && t.events[kept].rv <= rv {
		kept++
	}
	t.events = t.events[:kept:kept]
	close(t.changed)
	t.changed = make(chan struct{})
	t.dropWatches()
}

// scan walks the items of a namespace (all when empty) in key order from the given key on.
func scan(m *btree.Map[string, *item], namespace, from string, yield func(*item) bool) {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	m.Ascend(max(prefix, from), func(key string, it *item) bool {
		return strings.HasPrefix(key, prefix) && yield(it)
	})
}

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
