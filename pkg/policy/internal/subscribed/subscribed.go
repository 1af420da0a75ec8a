package subscribed

import (
	"federator.dev/federator/pkg/interest"
)

// Place is what is read: a bucket of a space, or all of it.
type Place struct {
	Space  interest.Space
	Bucket uint32
	Whole  bool
}

// In reports whether a set has all of a place.
func (p Place) In(s *interest.Set) bool {
	if p.Whole {
		return s.HasAll(p.Space)
	}
	return s.Has(p.Space, p.Bucket)
}

// whole is the bucket of an entry that is all of a space. No bucket is as large.
const whole = ^uint32(0)

// entry is what a hash is of.
type entry struct {
	space, bucket uint32
	readers       uint8 // a bit for each table of reads that has the hash
}

// Table knows what is read, what is wanted and what is held.
type Table struct {
	held     *interest.Set
	keys     map[uint64]entry // by the hash of the read
	spaces   []interest.Space
	bySpace  map[interest.Space]uint32
	wholes   map[uint32]int      // how many of keys are of all of a space
	waiting  map[uint64]struct{} // of keys, those that are not held
	loose    []uint64            // of keys, those that perhaps nobody reads
	standing *interest.Set       // wanted whatever is read

	wanted *interest.Set
	fresh  interest.Builder // wanted, too
	added  bool             // whether fresh has anything
	gone   int              // keys that were wanted when wanted was counted, or since, and are not any more
	first  *interest.Set    // see Settled
}

// New returns a table of a process that has some keys.
func New(held *interest.Set) *Table {
	t := &Table{held: held}
	t.Clear()
	return t
}

// Clear forgets what is read and wanted, but for what stands.
func (t *Table) Clear() {
	t.keys, t.waiting, t.loose = map[uint64]entry{}, map[uint64]struct{}{}, nil
	t.spaces, t.bySpace, t.wholes = nil, map[interest.Space]uint32{}, map[uint32]int{}
	t.fresh.Take()
	t.wanted, t.added, t.gone = t.standing, false, 0
}

// Held is what this process has.
func (t *Table) Held() *interest.Set { return t.held }

// Holds reports whether this process has all of a place.
func (t *Table) Holds(p Place) bool { return p.In(t.held) }

// Knows reports whether it is known what the hash of a read is of.
func (t *Table) Knows(key uint64) bool {
	_, ok := t.keys[key]
	return ok
}

// Add says what the hash of a read is of, which a table of reads is given next.
func (t *Table) Add(key uint64, p Place) {
	if t.Knows(key) {
		return
	}
	e := entry{space: t.number(p.Space), bucket: p.Bucket}
	if p.Whole {
		e.bucket = whole
		t.wholes[e.space]++
	}
	t.keys[key] = e
	t.loose = append(t.loose, key)
	if !t.Holds(p) {
		t.waiting[key] = struct{}{}
	}
	if !p.In(t.wanted) {
		t.want(&t.fresh, p)
		t.added = true
	}
}

func (t *Table) number(space interest.Space) uint32 {
	n, ok := t.bySpace[space]
	if !ok {
		n = uint32(len(t.spaces))
		t.bySpace[space] = n
		t.spaces = append(t.spaces, space)
	}
	return n
}

func (t *Table) place(e entry) Place {
	return Place{Space: t.spaces[e.space], Bucket: e.bucket, Whole: e.bucket == whole}
}

func (t *Table) want(b *interest.Builder, p Place) {
	if p.Whole {
		b.AddAll(p.Space)
	} else {
		b.Add(p.Space, p.Bucket)
	}
}

// Watch returns what one of two tables of reads tells of its keys: 0 or 1.
func (t *Table) Watch(table uint8) func(key uint64, read bool) {
	return func(key uint64, read bool) {
		e, ok := t.keys[key]
		if !ok {
			return // a read of something else
		}
		if read {
			e.readers |= 1 << table
		} else if e.readers &^= 1 << table; e.readers == 0 {
			t.loose = append(t.loose, key) // it may be read again before the pass ends
		}
		t.keys[key] = e
	}
}

// Stand says what is wanted whatever is read. It takes effect with Recount.
func (t *Table) Stand(standing *interest.Set) { t.standing = standing }

// Sweep forgets what nobody reads, at the end of a pass. When most that was wanted is not read any more, or all of a space, it
// counts again what is.
func (t *Table) Sweep() {
	less := false
	for _, key := range t.loose {
		if e, ok := t.keys[key]; ok && e.readers == 0 {
			delete(t.keys, key)
			delete(t.waiting, key)
			t.gone++
			less = t.dropWhole(e) || less
		}
	}
	if cap(t.loose) > keptLoose {
		t.loose = nil
	}
	t.loose = t.loose[:0]
	if less || t.gone > len(t.keys) && t.gone > minGone {
		t.Recount()
	}
}

// dropWhole reports whether an entry that is gone was the last of all of its space.
func (t *Table) dropWhole(e entry) bool {
	if e.bucket != whole {
		return false
	}
	if t.wholes[e.space]--; t.wholes[e.space] > 0 {
		return false
	}
	delete(t.wholes, e.space)
	return true
}

const (
	keptLoose = 4096
	minGone   = 1000
)

// Recount counts again what is wanted, at the cost of all that is read.
func (t *Table) Recount() {
	var b interest.Builder
	for _, e := range t.keys {
		t.want(&b, t.place(e))
	}
	wanted := b.Take().With(t.standing)
	t.fresh.Take()
	t.added, t.gone = false, 0
	if !wanted.Equal(t.wanted) { // comparisons are of pointers then
		t.wanted = wanted
	}
}

// Wanted is what this process is to have.
func (t *Table) Wanted() *interest.Set {
	if t.added {
		t.wanted, t.added = t.wanted.With(t.fresh.Take()), false
	}
	return t.wanted
}

// SetHeld says what this process has from now on, and calls changed with each hash of which that differs.
func (t *Table) SetHeld(held *interest.Set, changed func(key uint64)) {
	former := t.held
	t.held = held
	if held.Covers(former) {
		for key := range t.waiting {
			if t.Holds(t.place(t.keys[key])) {
				delete(t.waiting, key)
				changed(key)
			}
		}
		return
	}
	for key, e := range t.keys {
		p := t.place(e)
		has := t.Holds(p)
		if has == p.In(former) {
			continue
		}
		if has {
			delete(t.waiting, key)
		} else {
			t.waiting[key] = struct{}{}
		}
		changed(key)
	}
}

// Waits reports whether anything that is read is not held.
func (t *Table) Waits() bool { return len(t.waiting) > 0 }

// Settled reports whether all is held that was wanted when it was asked first, as far as it still is.
func (t *Table) Settled() bool {
	if t.first == nil {
		if t.first = t.Wanted(); t.first == nil {
			t.first = &interest.Set{}
		}
	}
	return t.held.Covers(t.first.Both(t.Wanted()))
}

// Size returns how many hashes are known, how many of them wait, and the heap bytes of the table, about.
func (t *Table) Size() (keys, waiting int, bytes int64) {
	return len(t.keys), len(t.waiting), int64(len(t.keys))*entryBytes + int64(len(t.waiting))*waitingBytes
}

// What maps take of one key, with the room that they keep.
const (
	entryBytes   = 32
	waitingBytes = 14
)
