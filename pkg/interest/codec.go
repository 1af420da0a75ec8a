package interest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
)

// ErrMalformed is the error of bytes that are no set.
var ErrMalformed = errors.New("malformed set of keys")

// Bounds of what is decoded.
const (
	maxSpaces = 1 << 16
	maxName   = 1 << 10
	maxBitmap = 1 << 18 // a bitmap of all buckets has half of it
)

// What a space is written with: all of it, or buckets.
const (
	someKeys = iota
	allKeys
)

// Append appends a set: whether it is everything, the number of spaces, and for each its name, and its buckets in
// roaring's portable format (https://github.com/RoaringBitmap/RoaringFormatSpec), each with its length as an unsigned varint.
func (s *Set) Append(to []byte) ([]byte, error) {
	if s.IsEverything() {
		return append(to, allKeys), nil
	}
	to = append(to, someKeys)
	n := 0
	if s != nil {
		n = len(s.spaces)
	}
	to = binary.AppendUvarint(to, uint64(n))
	for space := range s.Spaces() {
		to = append(binary.AppendUvarint(to, uint64(len(space))), space...)
		k := s.spaces[space]
		if k.buckets == nil {
			to = append(to, allKeys)
			continue
		}
		bitmap, err := k.buckets.ToBytes()
		if err != nil {
			return nil, fmt.Errorf("keys of %s: %w", space, err)
		}
		to = append(binary.AppendUvarint(append(to, someKeys), uint64(len(bitmap))), bitmap...)
	}
	return to, nil
}

// Decode returns the set that all of b is. It keeps nothing of b.
func Decode(b []byte) (*Set, error) {
	d := decoder{rest: b}
	if d.is(allKeys) {
		return Everything(), d.end()
	}
	n := d.number(maxSpaces)
	s := &Set{spaces: map[Space]*keys{}}
	for range n {
		space := Space(d.bytes(maxName))
		k := &keys{}
		if !d.is(allKeys) {
			k.buckets = d.bitmap()
		}
		if d.bad {
			break
		}
		if s.spaces[space] != nil {
			return nil, fmt.Errorf("%w: %q is in it twice", ErrMalformed, space)
		}
		s.spaces[space] = k
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return s, nil
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) is(what byte) bool {
	if len(d.rest) == 0 || d.rest[0] > allKeys {
		d.bad = true
		return false
	}
	is := d.rest[0] == what
	d.rest = d.rest[1:]
	return is
}

func (d *decoder) number(most uint64) uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.bad = d.bad || size <= 0 || n > most; d.bad {
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) bytes(most uint64) []byte {
	n := d.number(most)
	if d.bad = d.bad || n > uint64(len(d.rest)); d.bad {
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) bitmap() *roaring.Bitmap {
	from := d.bytes(maxBitmap)
	if d.bad {
		return nil
	}
	b := roaring.New()
	n, err := b.FromBuffer(append([]byte(nil), from...))
	if d.bad = err != nil || n != int64(len(from)) || b.Validate() != nil || b.IsEmpty() || b.Maximum() >= Buckets; d.bad {
		return nil
	}
	return b
}

func (d *decoder) end() error {
	if d.bad || len(d.rest) > 0 {
		return ErrMalformed
	}
	return nil
}
