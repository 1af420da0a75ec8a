package segments

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"federator.dev/federator/internal/frames"
)

// The index of a sealed segment says for the hash of a facet in which blocks it may be. It is sorted
// by hash and cut into pages, of which the directory has the first hash. A page is entries of
//
//	difference to the hash before     uvarint
//	number of runs of blocks          uvarint
//	runs: gap to the one before, length less one
//
// Hashes are short: blocks are decoded and compared, and one in vain is cheap.

// pageBytes is about how long a page is.
const pageBytes = 2 << 10

// hashOf is the hash of a facet's value.
func hashOf(facet int, value string) uint32 {
	return uint32((xxhash.Sum64String(value) ^ uint64(facet)*0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd >> 32)
}

// indexWriter collects which facets are in which blocks.
type indexWriter struct {
	pairs []uint64 // hash and block
	last  [numFacets]string
	block [numFacets]int // of the last, and one
}

// add takes note of a subject of a block. Subjects come sorted, blocks ascending.
func (w *indexWriter) add(number int, s *subject) {
	for f, value := range s {
		if value == "" || w.block[f] == number+1 && w.last[f] == value {
			continue
		}
		w.last[f], w.block[f] = value, number+1
		w.pairs = append(w.pairs, uint64(hashOf(f, value))<<32|uint64(number))
	}
}

// pages yields the pages, and the first hash of each.
func (w *indexWriter) pages(yield func(first uint32, page []byte)) {
	slices.Sort(w.pairs)
	pairs := slices.Compact(w.pairs)
	var page []byte
	first, before := uint32(0), uint32(0)
	for len(pairs) > 0 {
		hash, n := uint32(pairs[0]>>32), 1
		for n < len(pairs) && uint32(pairs[n]>>32) == hash {
			n++
		}
		if len(page) >= pageBytes {
			yield(first, page)
			page = page[:0]
		}
		if len(page) == 0 {
			first, before = hash, hash
		}
		page = binary.AppendUvarint(page, uint64(hash-before))
		page = appendRuns(page, pairs[:n])
		before, pairs = hash, pairs[n:]
	}
	if len(page) > 0 {
		yield(first, page)
	}
}

// appendRuns appends the runs of the blocks of one hash.
func appendRuns(dst []byte, pairs []uint64) []byte {
	runs := 0
	for i := range pairs {
		if i == 0 || pairs[i] != pairs[i-1]+1 {
			runs++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(runs))
	next := uint64(0)
	for i := 0; i < len(pairs); {
		n := 1
		for i+n < len(pairs) && pairs[i+n] == pairs[i+n-1]+1 {
			n++
		}
		from := pairs[i] & 0xffffffff
		dst = binary.AppendUvarint(dst, from-next)
		dst = binary.AppendUvarint(dst, uint64(n-1))
		next = from + uint64(n)
		i += n
	}
	return dst
}

// find returns the blocks that a page has for a hash, ascending.
func find(page []byte, first, hash uint32, blocks int) ([]uint32, error) {
	c := cursor{b: page}
	at := uint64(first)
	for c.rest() > 0 {
		at += c.uvarint()
		runs := c.uvarint()
		if at > uint64(hash) {
			break
		}
		var out []uint32
		next := uint64(0)
		for range runs {
			gap, more := c.uvarint(), c.uvarint()
			// Each run is within the segment: nothing is computed from numbers that are not.
			if c.bad || gap > uint64(blocks) || more > uint64(blocks) || next+gap+more >= uint64(blocks) {
				return nil, fmt.Errorf("index: %w", frames.ErrDoubt)
			}
			if at == uint64(hash) {
				for i := range more + 1 {
					out = append(out, uint32(next+gap+i))
				}
			}
			next += gap + more + 1
		}
		if at == uint64(hash) {
			return out, nil
		}
	}
	if c.bad {
		return nil, fmt.Errorf("index: %w", frames.ErrDoubt)
	}
	return nil, nil
}

// intersect returns what is in both lists, in the first one's array.
func intersect(a, b []uint32) []uint32 {
	out := a[:0]
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			out = append(out, a[0])
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// blockInfo is what the directory says of a block.
type blockInfo struct {
	offset       int64
	size         uint32 // of the frame
	plain        uint32 // bytes of the block when it is decompressed
	entries      uint32
	first, last  uint32 // positions, from the segment's first on
	since, until int64  // the least and the greatest time, in milliseconds
}

// pageInfo is what the directory says of a page of the index.
type pageInfo struct {
	offset int64
	size   uint32
	first  uint32 // hash
}

// directory is what is known of a sealed segment without reading it. It does not change.
type directory struct {
	entries int
	blocks  []blockInfo
	pages   []pageInfo
}

// append appends the directory. Blocks follow one another in the file, and so do pages after them.
func (d *directory) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(d.entries))
	dst = binary.AppendUvarint(dst, uint64(len(d.blocks)))
	end, before := int64(0), int64(0)
	for i := range d.blocks {
		b := &d.blocks[i]
		dst = binary.AppendUvarint(dst, uint64(b.offset-end))
		for _, n := range [...]uint32{b.size, b.plain, b.entries, b.first, b.last - b.first} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		dst = binary.AppendVarint(dst, b.since-before)
		dst = binary.AppendUvarint(dst, uint64(b.until-b.since))
		end, before = b.offset+int64(b.size), b.since
	}
	dst = binary.AppendUvarint(dst, uint64(len(d.pages)))
	hash := uint32(0)
	for _, p := range d.pages {
		dst = binary.AppendUvarint(dst, uint64(p.offset-end))
		dst = binary.AppendUvarint(dst, uint64(p.size))
		dst = binary.AppendUvarint(dst, uint64(p.first-hash))
		end, hash = p.offset+int64(p.size), p.first
	}
	return dst
}

// decodeDirectory decodes a directory, and checks that what it says fits into a segment of some
// positions and bytes.
func decodeDirectory(in []byte, positions uint64, bytes int64) (*directory, error) {
	doubt := func(what string) (*directory, error) {
		return nil, fmt.Errorf("directory: %s: %w", what, frames.ErrDoubt)
	}
	c := cursor{b: in}
	d := &directory{entries: int(c.uvarint())}
	n := c.uvarint()
	if c.bad || n > uint64(c.rest()/8) || uint64(d.entries) > positions {
		return doubt("blocks")
	}
	d.blocks = make([]blockInfo, n)
	end, before, entries := int64(0), int64(0), 0
	for i := range d.blocks {
		b := &d.blocks[i]
		gap := c.uvarint()
		var v [5]uint64
		for j := range v {
			if v[j] = c.uvarint(); v[j] >= 1<<31 {
				return doubt("a block")
			}
		}
		b.since = before + c.varint()
		b.until = b.since + int64(c.uvarint())
		b.offset, b.size, b.plain, b.entries, b.first, b.last = end+int64(gap), uint32(v[0]), uint32(v[1]), uint32(v[2]), uint32(v[3]), uint32(v[3]+v[4])
		if c.bad || gap > uint64(bytes) || b.offset+int64(b.size) > bytes || b.size < frames.HeaderBytes || b.plain > maxBlockBytes || b.until < b.since || v[3]+v[4] >= positions || v[2] > v[4]+1 {
			return doubt("a block")
		}
		end, before, entries = b.offset+int64(b.size), b.since, entries+int(b.entries)
	}
	if n = c.uvarint(); c.bad || n > uint64(c.rest()/3) || entries != d.entries {
		return doubt("pages")
	}
	d.pages = make([]pageInfo, n)
	hash := uint64(0)
	for i := range d.pages {
		gap, size := c.uvarint(), c.uvarint()
		hash += c.uvarint()
		if c.bad || gap > uint64(bytes) || size > uint64(bytes) || size < frames.HeaderBytes || end+int64(gap)+int64(size) > bytes || hash >= 1<<32 {
			return doubt("a page")
		}
		d.pages[i] = pageInfo{offset: end + int64(gap), size: uint32(size), first: uint32(hash)}
		end += int64(gap) + int64(size)
	}
	if c.rest() > 0 {
		return doubt("it goes on")
	}
	return d, nil
}
