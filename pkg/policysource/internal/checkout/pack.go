package checkout

import (
	"bytes"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"
)

// unpack reads an untrusted pack. Its sizes are checked first, because the parser trusts
// them.
func unpack(pack []byte, limits Limits) (_ storer.EncodedObjectStorer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fail(ErrProtocol, "the pack cannot be read: %v", r)
		}
	}()
	if err := checkSizes(pack, limits); err != nil {
		return nil, decodeError(err, "the pack")
	}
	objects := memory.NewStorage()
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(bytes.NewReader(pack)), objects)
	if err == nil {
		_, err = parser.Parse()
	}
	if err != nil {
		return nil, decodeError(err, "the pack")
	}
	return objects, nil
}

// checkSizes rejects a pack that would be too large unpacked.
func checkSizes(pack []byte, limits Limits) error {
	s := packfile.NewScanner(bytes.NewReader(pack))
	_, count, err := s.Header()
	if err != nil {
		return err
	}
	if int64(count) > int64(limits.Objects) {
		return fail(ErrLimit, "the pack has %d objects, more than %d", count, limits.Objects)
	}
	left := limits.Unpacked
	reserve := func(size int64) error {
		if size < 0 || size > left {
			return fail(ErrLimit, "the pack has more than %d bytes unpacked", limits.Unpacked)
		}
		left -= size
		return nil
	}
	for range count {
		h, err := s.NextObjectHeader()
		if err != nil {
			return err
		}
		if err := reserve(h.Length); err != nil {
			return err
		}
		if h.Type != plumbing.OFSDeltaObject && h.Type != plumbing.REFDeltaObject {
			continue // the scanner skips it, and fails if it is longer than declared
		}
		var start deltaHeader
		if _, _, err := s.NextObject(&start); err != nil {
			return err
		}
		size, err := start.targetSize()
		if err != nil {
			return err
		}
		if err := reserve(size); err != nil {
			return err
		}
	}
	_, err = s.Checksum()
	return err
}

// deltaHeader keeps the two sizes at the start of a delta (gitformat-pack(5)).
type deltaHeader struct {
	text [20]byte
	n    int
}

func (d *deltaHeader) Write(p []byte) (int, error) {
	d.n += copy(d.text[d.n:], p)
	return len(p), nil
}

// targetSize returns the size of the object that the delta creates.
func (d *deltaHeader) targetSize() (int64, error) {
	r := bytes.NewReader(d.text[:d.n])
	var size int64
	for range 2 { // the first is the base's
		var err error
		if size, err = littleEndian128(r); err != nil {
			return 0, err
		}
	}
	return size, nil
}

func littleEndian128(r io.ByteReader) (int64, error) {
	var n int64
	for shift := 0; shift < 63; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, fmt.Errorf("a delta is truncated: %w", err)
		}
		n |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("a delta's length has more than 63 bits")
}
