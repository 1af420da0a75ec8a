package deps

import (
	"iter"
	"unsafe"
)

const (
	chunkBits = 12
	chunkLen  = 1 << chunkBits
)

// arena allocates numbered slots, from 1, in chunks that never move.
type arena[T any] struct {
	chunks []*[chunkLen]T
	next   uint32 // the first slot that was never allocated
	freed  []uint32
}

func (a *arena[T]) at(id uint32) *T { return &a.chunks[id>>chunkBits][id&(chunkLen-1)] }

func (a *arena[T]) alloc() uint32 {
	if n := len(a.freed); n > 0 {
		id := a.freed[n-1]
		a.freed = a.freed[:n-1]
		return id
	}
	if a.next == 0 {
		a.next = 1
	}
	id := a.next
	a.next++
	if int(id>>chunkBits) == len(a.chunks) {
		a.chunks = append(a.chunks, new([chunkLen]T))
	}
	return id
}

func (a *arena[T]) free(id uint32) { a.freed = append(a.freed, id) }

func (a *arena[T]) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for id := uint32(1); id < a.next; id++ {
			if !yield(id) {
				return
			}
		}
	}
}

func (a *arena[T]) live() int {
	if a.next == 0 {
		return 0
	}
	return int(a.next) - 1 - len(a.freed)
}

func (a *arena[T]) bytes() int64 {
	var t T
	return int64(len(a.chunks))*chunkLen*int64(unsafe.Sizeof(t)) + int64(cap(a.freed))*4 + int64(cap(a.chunks))*8
}

// hashIndex is an open-addressing hash table of numbers other than 0, by the hash of what
// they identify.
type hashIndex struct {
	slots []uint32 // a power of two, or none
	used  int
}

func (h *hashIndex) bytes() int64 { return int64(cap(h.slots)) * 4 }

// full reports whether the table must grow before the next put.
func (h *hashIndex) full() bool { return (h.used+1)*4 > len(h.slots)*3 }

// find returns the slot of the number that has the hash and matches, or 0.
func (h *hashIndex) find(hash uint64, matches func(uint32) bool) (slot int, id uint32) {
	if len(h.slots) == 0 {
		return 0, 0
	}
	for i := h.start(hash); ; i = h.after(i) {
		id := h.slots[i]
		if id == 0 || matches(id) {
			return i, id
		}
	}
}

func (h *hashIndex) start(hash uint64) int { return int(hash & uint64(len(h.slots)-1)) } // Below len.

func (h *hashIndex) after(i int) int { return (i + 1) & (len(h.slots) - 1) }

// put adds a number that is not there.
func (h *hashIndex) put(hash uint64, id uint32) {
	i := h.start(hash)
	for h.slots[i] != 0 {
		i = h.after(i)
	}
	h.slots[i] = id
	h.used++
}

// remove empties a slot and moves back the numbers that it displaced.
func (h *hashIndex) remove(slot int, hash func(uint32) uint64) {
	h.used--
	for i := h.after(slot); h.slots[i] != 0; i = h.after(i) {
		// The number at i may move to slot unless its start lies cyclically
		// within (slot, i].
		s := h.start(hash(h.slots[i]))
		if (i > slot && (s <= slot || s > i)) || (i < slot && s <= slot && s > i) {
			h.slots[slot] = h.slots[i]
			slot = i
		}
	}
	h.slots[slot] = 0
}

func (h *hashIndex) grow(hash func(uint32) uint64) {
	old := h.slots
	h.slots = make([]uint32, max(16, 2*len(old)))
	h.used = 0
	for _, id := range old {
		if id != 0 {
			h.put(hash(id), id)
		}
	}
}
