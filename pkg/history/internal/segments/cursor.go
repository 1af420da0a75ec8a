package segments

import "encoding/binary"

// cursor reads numbers and texts; what is not there makes it bad.
type cursor struct {
	b   []byte
	at  int
	bad bool
}

// rest is how many bytes are left.
func (c *cursor) rest() int { return len(c.b) - c.at }

func (c *cursor) fail() { c.at, c.bad = len(c.b), true }

func (c *cursor) uvarint() uint64 {
	if c.at < len(c.b) && c.b[c.at] < 0x80 {
		c.at++
		return uint64(c.b[c.at-1])
	}
	v, n := binary.Uvarint(c.b[c.at:])
	if n <= 0 {
		c.fail()
		return 0
	}
	c.at += n
	return v
}

func (c *cursor) varint() int64 {
	u := c.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// fixed reads a number of eight bytes.
func (c *cursor) fixed() uint64 {
	b := c.take(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// take returns the next bytes, nil where they are not there.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(c.rest()) {
		c.fail()
		return nil
	}
	c.at += int(n)
	return c.b[c.at-int(n) : c.at : c.at]
}

// facet reads a facet into the text of the subject before.
func (c *cursor) facet(text []byte, f int) []byte {
	shared, length := uint64(0), c.uvarint()
	switch {
	case f == facetUID && length == 0:
		if b := c.take(16); b != nil {
			return appendUUID(text[:0], b)
		}
		return text[:0]
	case f == facetUID:
		length--
	default:
		shared, length = length, c.uvarint()
	}
	if shared > uint64(len(text)) || length > MaxFacet || shared+length > MaxFacet {
		c.fail()
		return text[:0]
	}
	return append(text[:shared], c.take(length)...)
}
