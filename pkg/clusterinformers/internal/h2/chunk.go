package h2

import (
	"sync"
	"unsafe"
)

// chunk holds bytes that have come for a stream.
type chunk struct {
	next *chunk
	r, w int // what is read of data, and what is written
	data [chunkBytes - 3*unsafe.Sizeof(uintptr(0))]byte
}

// chunkBytes is what a chunk costs.
const chunkBytes = 4 << 10

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// newChunks returns a list of chunks for so many bytes, with its last.
func newChunks(size int) (first, last *chunk) {
	for at := &first; size > 0; at = &last.next {
		last = chunks.Get().(*chunk)
		last.w = min(size, len(last.data))
		size -= last.w
		*at = last
	}
	return first, last
}

// costOf is what the chunks for so many bytes cost.
func costOf(size int) int64 {
	room := len(chunk{}.data)
	return int64((size+room-1)/room) * chunkBytes
}

// recycle returns a list of chunks to the pool, and how many bytes they cost.
func recycle(list *chunk) (bytes int64) {
	for list != nil {
		next := list.next
		list.next, list.r, list.w = nil, 0, 0
		chunks.Put(list)
		bytes += chunkBytes
		list = next
	}
	return bytes
}
