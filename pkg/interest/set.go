package interest

import (
	"iter"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/aggregate"
)

// Buckets is how many a space has. A hundred thousand keys that are read have a tenth of all others in their buckets.
const Buckets = 1 << 20

// most is how many buckets of a space are read when it is read whole: a bitmap of them is dense.
const most = Buckets / 2

// Space is what keys are of: the objects of a kind, or a view.
type Space string

// Names is the space of a kind's objects, whose keys are NameKey.
func Names(kind aggregate.Kind) Space { return Space("k" + string(kind)) }

// View is the space of a view, by what processes call it, whose keys are those of its entries.
func View(identity string) Space { return Space("v" + identity) }

// Bucket returns that of a key.
func Bucket(key string) uint32 { return uint32(xxhash.Sum64String(key) % Buckets) }

// NameKey is the key of an object in the space of its kind.
func NameKey(namespace, name string) string { return namespace + "/" + name }

// Set is an immutable set of keys. The zero value and nil have none.
type Set struct {
	everything bool
	spaces     map[Space]*keys
}

// keys are those of a space: all of them where buckets is nil. They never change.
type keys struct{ buckets *roaring.Bitmap }

// Everything has all keys of all spaces.
func Everything() *Set { return &Set{everything: true} }

// Has reports whether a set has a bucket of a space.
func (s *Set) Has(space Space, bucket uint32) bool {
	if s == nil {
		return false
	}
	k := s.spaces[space]
	return s.everything || k != nil && (k.buckets == nil || k.buckets.Contains(bucket))
}

// HasAll reports whether a set has all of a space.
func (s *Set) HasAll(space Space) bool {
	if s == nil {
		return false
	}
	k := s.spaces[space]
	return s.everything || k != nil && k.buckets == nil
}

// IsEverything reports whether a set is Everything.
func (s *Set) IsEverything() bool { return s != nil && s.everything }

// Empty reports whether a set has nothing.
func (s *Set) Empty() bool { return s == nil || !s.everything && len(s.spaces) == 0 }

// Spaces yields the spaces of which a set has anything, in order; none of Everything.
func (s *Set) Spaces() iter.Seq[Space] {
	if s == nil {
		return func(func(Space) bool) {}
	}
	return slices.Values(slices.Sorted(maps.Keys(s.spaces)))
}

// With returns what is in a set or in another.
func (s *Set) With(other *Set) *Set {
	switch {
	case s.Covers(other):
		return s
	case other.everything, s.Empty():
		return other
	}
	out := &Set{spaces: maps.Clone(s.spaces)}
	for space, k := range other.spaces {
		if had := out.spaces[space]; had != nil {
			k = had.with(k)
		}
		out.spaces[space] = k
	}
	return out
}

func (k *keys) with(other *keys) *keys {
	if k.buckets == nil || other.buckets == nil {
		return &keys{}
	}
	return keysOf(roaring.Or(k.buckets, other.buckets))
}

func keysOf(b *roaring.Bitmap) *keys {
	if b.GetCardinality() >= most {
		return &keys{}
	}
	b.RunOptimize()
	return &keys{b}
}

// Without returns what is in a set and not in another. A space of which the set has all stays whole, unless the
// other has all of it, too.
func (s *Set) Without(other *Set) *Set {
	switch {
	case s.Empty() || other.Empty():
		return s
	case other.everything:
		return nil
	case s.everything:
		return s
	}
	out := &Set{spaces: map[Space]*keys{}}
	for space, k := range s.spaces {
		o := other.spaces[space]
		switch {
		case o == nil, k.buckets == nil && o.buckets != nil:
			out.spaces[space] = k
		case o.buckets == nil:
		default:
			if rest := roaring.AndNot(k.buckets, o.buckets); !rest.IsEmpty() {
				out.spaces[space] = &keys{rest}
			}
		}
	}
	return out
}

// Both returns what is in a set and in another.
func (s *Set) Both(other *Set) *Set {
	switch {
	case s.Empty() || other.Empty():
		return nil
	case s.everything:
		return other
	case other.everything:
		return s
	}
	out := &Set{spaces: map[Space]*keys{}}
	for space, k := range s.spaces {
		o := other.spaces[space]
		switch {
		case o == nil:
		case o.buckets == nil:
			out.spaces[space] = k
		case k.buckets == nil:
			out.spaces[space] = o
		default:
			if both := roaring.And(k.buckets, o.buckets); !both.IsEmpty() {
				out.spaces[space] = &keys{both}
			}
		}
	}
	return out
}

// Covers reports whether a set has all that another has.
func (s *Set) Covers(other *Set) bool {
	switch {
	case other.Empty() || s == other || s.IsEverything():
		return true
	case other.everything || s == nil:
		return false
	}
	for space, k := range other.spaces {
		if had := s.spaces[space]; had == nil || !had.covers(k) {
			return false
		}
	}
	return true
}

func (k *keys) covers(other *keys) bool {
	switch {
	case k == other || k.buckets == nil:
		return true
	case other.buckets == nil:
		return false
	}
	return k.buckets.AndCardinality(other.buckets) == other.buckets.GetCardinality()
}

// Equal reports whether two sets have the same.
func (s *Set) Equal(other *Set) bool { return s.Covers(other) && other.Covers(s) }

// Size returns how many buckets a set names, of spaces that it has not all of.
func (s *Set) Size() int {
	n := 0
	if s != nil {
		for _, k := range s.spaces {
			if k.buckets != nil {
				n += int(k.buckets.GetCardinality())
			}
		}
	}
	return n
}

// Bytes returns how many bytes of heap a set takes, about.
func (s *Set) Bytes() int {
	const fixed = 256 // of a space, with its place in the map
	n := 0
	if s != nil {
		for space, k := range s.spaces {
			if n += fixed + len(space); k.buckets != nil {
				n += int(k.buckets.GetSizeInBytes())
			}
		}
	}
	return n
}
