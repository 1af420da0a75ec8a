// Package instants is the time of an engine: as of when its verdicts are, and which
// instants they wait for.
//
// Reads of instants are in the tables of reads as all others, under keys that name the
// instant. A Set knows these keys in order: it is told by the tables which keys come and
// go, so that what is replaced or removed leaves nothing behind.
//
// # Concurrency
//
// A Clock and a Set belong to one goroutine; others may read a Clock that does not change.
//
// # Trade-offs
//
// Only instants that have not passed are recorded: what has passed goes on having passed.
// A clock that is set back is rare, and then all that may have read an instant in between
// is evaluated again.
package instants

import (
	"iter"

	"github.com/tidwall/btree"
)

// Clock is the time of an engine, in seconds since 1970.
type Clock struct {
	// AsOf is the time of verdicts: it never falls.
	AsOf int64
	// Now is that of the caller's clock. After a step back it is before AsOf: instants in between have passed
	// once and are in doubt until they pass again.
	Now int64
}

// maxStepBack is how far a clock may go back unnoticed: clocks are corrected all the time.
const maxStepBack = 5

// Set takes in the time of the caller's clock, and reports whether it has stepped back.
func (c *Clock) Set(now int64) (back bool) {
	if back = c.IsBack(now); back || now > c.Now {
		c.Now = now
	}
	c.AsOf = max(c.AsOf, c.Now)
	return back
}

// IsBack reports whether a time is that of a clock which has stepped back.
func (c *Clock) IsBack(now int64) bool { return now < c.Now-maxStepBack }

// Bit is set in the keys of reads that name an instant, and in no others.
const Bit = 1 << 63

// The other bits of a key have the instant: which there are is found among the keys. They are mixed, since tables
// of keys take them as they are, and instants are often whole days.
const (
	bits     = 1<<62 - 1
	mixing   = 0x9E3779B97F4A7C15
	unmixing = 0xF1DE83E19937733D // mixing * unmixing is 1, modulo 2^64
)

// Key returns the key of an instant after 1970.
func Key(at int64) uint64 {
	x := uint64(at) // It is not negative.
	for range 2 {
		x = x * mixing & bits
		x ^= x >> 31
	}
	return Bit | x
}

// Of returns the instant that a key names, if it names one.
func Of(key uint64) (int64, bool) {
	if key&Bit == 0 {
		return 0, false
	}
	x := key & bits
	for range 2 {
		x ^= x >> 31
		x = x * unmixing & bits
	}
	return int64(x), true // It is what Key took.
}

// Set is the instants that verdicts have read and that had not passed then, in order.
type Set struct {
	inOrder *btree.BTreeG[int64] // an instant, and in the last bit the table that has it
}

// NewSet returns an empty set.
func NewSet() Set {
	return Set{btree.NewBTreeGOptions(func(a, b int64) bool { return a < b }, btree.Options{NoLocks: true})}
}

// Watch returns what one of two tables of reads tells of its keys: 0 or 1.
func (s Set) Watch(table int64) func(key uint64, read bool) {
	return func(key uint64, read bool) {
		at, ok := Of(key)
		switch {
		case !ok:
		case read:
			s.inOrder.Set(at<<1 | table)
		default:
			s.inOrder.Delete(at<<1 | table)
		}
	}
}

// Until yields the instants up to one. The set must not change meanwhile.
func (s Set) Until(now int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		s.inOrder.Scan(func(x int64) bool { return x>>1 <= now && yield(x>>1) })
	}
}

// After returns the first instant after one; ok is false when there is none.
func (s Set) After(now int64) (at int64, ok bool) {
	s.inOrder.Ascend((now+1)<<1, func(x int64) bool {
		at, ok = x>>1, true
		return false
	})
	return at, ok
}

// Len returns how many there are, those of each table.
func (s Set) Len() int { return s.inOrder.Len() }
