package interest

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
)

// Builder collects a set. The zero value is ready; its methods are safe for concurrent use.
type Builder struct {
	mu     sync.Mutex
	spaces map[Space]*roaring.Bitmap // nil bitmap: all of it
}

// Add adds a bucket of a space.
func (b *Builder) Add(space Space, bucket uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	have, some := b.spaces[space]
	switch {
	case !some:
		have = roaring.New()
		b.put(space, have)
	case have == nil:
		return
	}
	have.Add(bucket)
}

// AddAll adds all of a space.
func (b *Builder) AddAll(space Space) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(space, nil)
}

func (b *Builder) put(space Space, buckets *roaring.Bitmap) {
	if b.spaces == nil {
		b.spaces = map[Space]*roaring.Bitmap{}
	}
	b.spaces[space] = buckets
}

// Take returns what was added since the last call.
func (b *Builder) Take() *Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spaces) == 0 {
		return nil
	}
	out := &Set{spaces: make(map[Space]*keys, len(b.spaces))}
	for space, buckets := range b.spaces {
		if buckets == nil {
			out.spaces[space] = &keys{}
		} else {
			out.spaces[space] = keysOf(buckets)
		}
	}
	b.spaces = nil
	return out
}
