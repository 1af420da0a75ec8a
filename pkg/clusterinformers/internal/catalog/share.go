package catalog

import (
	"hash/maphash"
	"iter"
	"maps"
	"slices"

	"federator.dev/federator/pkg/aggregate"
)

// pool has what several members serve alike once: most members of a fleet serve the same, and
// the others most kinds as they do. The catalog's mu guards it.
type pool struct {
	seed  maphash.Seed
	all   map[uint64][]*shared[APIResources] // by hash
	kinds map[uint64][]*shared[servedKind]   // by hash
}

// shared is a value and how many use it.
type shared[T any] struct {
	value T
	users int
}

// servedKind is a kind and how it is served.
type servedKind struct {
	kind     aggregate.Kind
	versions []APIResource
}

func newPool() pool {
	return pool{seed: maphash.MakeSeed(), all: map[uint64][]*shared[APIResources]{}, kinds: map[uint64][]*shared[servedKind]{}}
}

// acquire returns what equals o and is shared with all who have acquired that, and whether
// nobody has. None of them may change it.
func (p *pool) acquire(o APIResources) (own APIResources, first bool) {
	sum := p.hash(o)
	if s := find(p.all[sum], func(have APIResources) bool { return equal(have, o) }); s != nil {
		s.users++
		return s.value, false
	}
	own = make(APIResources, len(o))
	for kind, versions := range o {
		h := p.hashKind(kind, versions)
		s := find(p.kinds[h], func(have servedKind) bool { return have.kind == kind && slices.Equal(have.versions, versions) })
		if s == nil {
			s = &shared[servedKind]{value: servedKind{kind, slices.Clip(versions)}}
			p.kinds[h] = append(p.kinds[h], s)
		}
		s.users++
		own[s.value.kind] = s.value.versions
	}
	p.all[sum] = append(p.all[sum], &shared[APIResources]{own, 1})
	return own, true
}

// release gives back what acquire returned, and reports whether nobody has it any more.
func (p *pool) release(o APIResources) (last bool) {
	if !release(p.all, p.hash(o), func(have APIResources) bool { return equal(have, o) }) {
		return false
	}
	for kind, versions := range o {
		release(p.kinds, p.hashKind(kind, versions), func(have servedKind) bool { return have.kind == kind && slices.Equal(have.versions, versions) })
	}
	return true
}

// sets yields what members serve, each with its number of users.
func (p *pool) sets() iter.Seq2[APIResources, int] {
	return func(yield func(APIResources, int) bool) {
		for _, same := range p.all {
			for _, s := range same {
				if !yield(s.value, s.users) {
					return
				}
			}
		}
	}
}

func equal(a, b APIResources) bool { return maps.EqualFunc(a, b, slices.Equal) }

// hash does not depend on the order of kinds.
func (p *pool) hash(o APIResources) (sum uint64) {
	for kind, versions := range o {
		sum += p.hashKind(kind, versions)
	}
	return sum
}

func (p *pool) hashKind(kind aggregate.Kind, versions []APIResource) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	maphash.WriteComparable(&h, kind)
	for _, r := range versions {
		maphash.WriteComparable(&h, r)
	}
	return h.Sum64()
}

func find[T any](in []*shared[T], is func(T) bool) *shared[T] {
	for _, s := range in {
		if is(s.value) {
			return s
		}
	}
	return nil
}

// release counts a user down, and reports whether it was the last one.
func release[T any](from map[uint64][]*shared[T], hash uint64, is func(T) bool) bool {
	s := find(from[hash], is)
	if s == nil {
		return false
	}
	if s.users--; s.users > 0 {
		return false
	}
	from[hash] = slices.DeleteFunc(from[hash], func(have *shared[T]) bool { return have == s })
	if len(from[hash]) == 0 {
		delete(from, hash)
	}
	return true
}
