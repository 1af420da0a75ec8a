// Package deps is a compact index of which evaluations read which keys, in both
// directions: which evaluations a change of a key affects, and which reads the next run
// of an evaluation replaces.
//
// A pair is a binding and a subject. An edge says that a pair read a key; keys are
// 64-bit hashes, and two that collide cost an evaluation too many, never one too
// few. Edges are in lists by pair and by key, all in one arena, found through an
// open hash table of heads.
//
// # Concurrency
//
// A Table belongs to one goroutine.
package deps

import (
	"iter"
	"slices"
)

// Table holds pairs of bindings and subjects, and what they read.
type Table[S any] struct {
	hash  func(binding uint32, subject S) uint64
	equal func(a, b S) bool
	watch func(key uint64, read bool)

	pairs     arena[pair[S]]
	edges     arena[edge]
	pairIndex hashIndex // of pairs, by their hash
	keyIndex  hashIndex // of the lists of edges, by key
}

type pair[S any] struct {
	subject S
	binding uint32
	edges   uint32 // head of the list; 0 in a free pair
}

// edge is 24 bytes.
type edge struct {
	key                  uint64
	pair                 uint32
	nextOfPair           uint32 // next in the pair's list
	nextOfKey, prevOfKey uint32 // in the key's list
}

// New returns an empty table. hash and equal are of subjects; subjects that are
// equal may differ in what they carry. watch is told of each key that a pair reads while
// none did, perhaps again of one that it knows, and of each that no pair reads any more.
func New[S any](hash func(binding uint32, subject S) uint64, equal func(a, b S) bool, watch func(key uint64, read bool)) *Table[S] {
	return &Table[S]{hash: hash, equal: equal, watch: watch}
}

// Set replaces the reads of a pair by these keys, which must not repeat. It returns the
// change in the number of edges.
func (t *Table[S]) Set(binding uint32, subject S, keys []uint64) (more int) {
	h := t.hash(binding, subject)
	slot, id := t.find(h, binding, subject)
	if id == 0 {
		if len(keys) > 0 {
			t.insert(h, binding, subject, keys)
		}
		return len(keys)
	}
	if len(keys) == 0 {
		return -t.remove(slot, id)
	}
	p := t.pairs.at(id)
	p.subject = subject
	if t.same(p.edges, keys) {
		return 0
	}
	was := t.unlink(p)
	t.link(id, p, keys)
	return len(keys) - was
}

// ReplaceSubject replaces the subject of a pair by an equal one, if there is a pair.
func (t *Table[S]) ReplaceSubject(binding uint32, subject S) {
	if _, id := t.find(t.hash(binding, subject), binding, subject); id != 0 {
		t.pairs.at(id).subject = subject
	}
}

// Readers yields the pairs that read a key. The table must not change during the iteration.
func (t *Table[S]) Readers(key uint64) iter.Seq2[uint32, S] {
	return func(yield func(uint32, S) bool) {
		_, id := t.head(key)
		for id != 0 {
			e := t.edges.at(id)
			p := t.pairs.at(e.pair)
			if !yield(p.binding, p.subject) {
				return
			}
			id = e.nextOfKey
		}
	}
}

// Pairs yields the subjects of a binding that read something, at the cost of visiting
// all pairs. The table must not change during the iteration.
func (t *Table[S]) Pairs(binding uint32) iter.Seq[S] {
	return func(yield func(S) bool) {
		for id := range t.pairs.all() {
			if p := t.pairs.at(id); p.edges != 0 && p.binding == binding && !yield(p.subject) {
				return
			}
		}
	}
}

// Reads yields the keys that a pair read.
func (t *Table[S]) Reads(binding uint32, subject S) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		_, id := t.find(t.hash(binding, subject), binding, subject)
		if id == 0 {
			return
		}
		for at := t.pairs.at(id).edges; at != 0; at = t.edges.at(at).nextOfPair {
			if !yield(t.edges.at(at).key) {
				return
			}
		}
	}
}

// RemoveBindings removes all pairs of bindings, at the cost of visiting all pairs. It
// releases memory when most of the table is free.
func (t *Table[S]) RemoveBindings(gone func(binding uint32) bool) {
	for id := range t.pairs.all() {
		if p := t.pairs.at(id); p.edges != 0 && gone(p.binding) {
			slot, id := t.find(t.hash(p.binding, p.subject), p.binding, p.subject)
			t.remove(slot, id)
		}
	}
	t.shrink()
}

// shrink rebuilds the table when less than a quarter of it is in use.
func (t *Table[S]) shrink() {
	if t.edges.live() >= len(t.edges.chunks)*chunkLen/4 && t.pairs.live() >= len(t.pairs.chunks)*chunkLen/4 || len(t.edges.chunks)+len(t.pairs.chunks) <= 4 {
		return
	}
	fresh := New(t.hash, t.equal, t.watch)
	var keys []uint64
	for id := range t.pairs.all() {
		p := t.pairs.at(id)
		if p.edges == 0 {
			continue
		}
		keys = keys[:0]
		for at := p.edges; at != 0; at = t.edges.at(at).nextOfPair {
			keys = append(keys, t.edges.at(at).key)
		}
		slices.Reverse(keys) // in the order of Set
		fresh.Set(p.binding, p.subject, keys)
	}
	*t = *fresh
}

// Size returns how many pairs and edges there are, and the heap bytes of the table.
func (t *Table[S]) Size() (pairs, edges int, bytes int64) {
	return t.pairs.live(), t.edges.live(), t.pairs.bytes() + t.edges.bytes() + t.pairIndex.bytes() + t.keyIndex.bytes()
}

func (t *Table[S]) insert(h uint64, binding uint32, subject S, keys []uint64) {
	id := t.pairs.alloc()
	p := t.pairs.at(id)
	*p = pair[S]{subject: subject, binding: binding}
	t.link(id, p, keys)
	if t.pairIndex.full() {
		t.pairIndex.grow(func(id uint32) uint64 {
			p := t.pairs.at(id)
			return t.hash(p.binding, p.subject)
		})
	}
	t.pairIndex.put(h, id)
}

func (t *Table[S]) remove(slot int, id uint32) (edges int) {
	p := t.pairs.at(id)
	edges = t.unlink(p)
	t.pairIndex.remove(slot, func(id uint32) uint64 {
		p := t.pairs.at(id)
		return t.hash(p.binding, p.subject)
	})
	*p = pair[S]{}
	t.pairs.free(id)
	return edges
}

func (t *Table[S]) find(h uint64, binding uint32, subject S) (slot int, id uint32) {
	return t.pairIndex.find(h, func(id uint32) bool {
		p := t.pairs.at(id)
		return p.binding == binding && t.equal(p.subject, subject)
	})
}

func (t *Table[S]) head(key uint64) (slot int, id uint32) {
	return t.keyIndex.find(key, func(id uint32) bool { return t.edges.at(id).key == key })
}

// same reports whether a pair's list has these keys, in the order of link.
func (t *Table[S]) same(id uint32, keys []uint64) bool {
	for i := len(keys) - 1; i >= 0; i-- {
		if id == 0 || t.edges.at(id).key != keys[i] {
			return false
		}
		id = t.edges.at(id).nextOfPair
	}
	return id == 0
}

func (t *Table[S]) link(id uint32, p *pair[S], keys []uint64) {
	for _, key := range keys {
		at := t.edges.alloc()
		slot, head := t.head(key)
		*t.edges.at(at) = edge{key: key, pair: id, nextOfPair: p.edges, nextOfKey: head}
		p.edges = at
		if head != 0 {
			t.edges.at(head).prevOfKey = at
			t.keyIndex.slots[slot] = at
			continue
		}
		if t.keyIndex.full() {
			t.keyIndex.grow(func(id uint32) uint64 { return t.edges.at(id).key })
		}
		t.keyIndex.put(key, at)
		t.watch(key, true)
	}
}

func (t *Table[S]) unlink(p *pair[S]) (edges int) {
	for id := p.edges; id != 0; edges++ {
		e := t.edges.at(id)
		switch {
		case e.prevOfKey != 0:
			t.edges.at(e.prevOfKey).nextOfKey = e.nextOfKey
		default:
			slot, _ := t.head(e.key)
			if e.nextOfKey != 0 {
				t.keyIndex.slots[slot] = e.nextOfKey
			} else {
				t.keyIndex.remove(slot, func(id uint32) uint64 { return t.edges.at(id).key })
				t.watch(e.key, false)
			}
		}
		if e.nextOfKey != 0 {
			t.edges.at(e.nextOfKey).prevOfKey = e.prevOfKey
		}
		next := e.nextOfPair
		*e = edge{}
		t.edges.free(id)
		id = next
	}
	p.edges = 0
	return edges
}
