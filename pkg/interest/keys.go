package interest

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/pkg/aggregate"
)

// Key is one key, by its bucket.
type Key struct {
	Space  Space
	Bucket uint32
}

// Keys are what the record of an object is wanted for. Who has one fills it in again for the next object.
type Keys struct {
	Always bool // by all: something of it is not known, so nor are its keys
	Of     []Key
}

// Reset forgets what the last object was wanted for.
func (k *Keys) Reset() { k.Always, k.Of = false, k.Of[:0] }

// Add adds a key.
func (k *Keys) Add(space Space, bucket uint32) { k.Of = append(k.Of, Key{space, bucket}) }

// Wants reports whether a set has any of an object's keys, or the object is wanted by all.
func (s *Set) Wants(k *Keys) bool {
	if k.Always || s.IsEverything() {
		return k.Always || len(k.Of) > 0
	}
	for _, key := range k.Of {
		if s.Has(key.Space, key.Bucket) {
			return true
		}
	}
	return false
}

// NameBucket is Bucket of NameKey.
func NameBucket(namespace, name string) uint32 {
	var buf [160]byte
	b := append(append(append(buf[:0], namespace...), '/'), name...)
	return uint32(xxhash.Sum64(b) % Buckets)
}

// Kind returns the kind of whose objects a space is.
func (s Space) Kind() (kind aggregate.Kind, ok bool) {
	text, ok := strings.CutPrefix(string(s), "k")
	return aggregate.Kind(text), ok
}

// ViewOf returns the identity of the view of which a space is.
func (s Space) ViewOf() (identity string, ok bool) { return strings.CutPrefix(string(s), "v") }

// Of returns what reports whether a set has a bucket of a space.
func (s *Set) Of(space Space) func(bucket uint32) bool {
	if s == nil {
		return func(uint32) bool { return false }
	}
	k := s.spaces[space]
	switch {
	case s.everything || k != nil && k.buckets == nil:
		return func(uint32) bool { return true }
	case k == nil:
		return func(uint32) bool { return false }
	}
	return k.buckets.Contains
}
