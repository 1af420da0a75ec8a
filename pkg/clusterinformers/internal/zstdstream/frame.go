package zstdstream

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The format of frames and blocks: RFC 8878, 3.1.1.
const (
	magic         = 0xFD2FB528
	magicSkip     = 0x184D2A50 // the lowest four bits are any
	minFrameHead  = 5          // magic number and descriptor
	maxFrameHead  = 18
	blockHead     = 3
	checksumBytes = 4
	maxBlock      = 128 << 10
	minWindow     = 1 << 10
)

// MaxWindow is the largest window that a frame may ask for.
const MaxWindow = 1 << 20

// frameHead is what the header of a frame says.
type frameHead struct {
	window   int
	checksum bool
}

// Fields of the descriptor.
const (
	bitsDictionary   = 3
	bitChecksum      = 1 << 2
	bitReserved      = 1 << 3
	bitSingleSegment = 1 << 5
	shiftContentSize = 6
)

// frameHeadSize is how long a frame's header is, as far as its beginning says.
func frameHeadSize(head []byte) int {
	if len(head) < minFrameHead {
		return minFrameHead
	}
	d := head[4]
	return minFrameHead + windowSize(d) + contentSize(d)
}

// windowSize is the length of the window descriptor.
func windowSize(descriptor byte) int {
	if descriptor&bitSingleSegment != 0 {
		return 0
	}
	return 1
}

// contentSize is the length of the frame's content size.
func contentSize(descriptor byte) int {
	switch n := descriptor >> shiftContentSize; {
	case n > 0:
		return 1 << n
	case descriptor&bitSingleSegment != 0:
		return 1
	}
	return 0
}

// checkFrameHead refuses what a header that has come in part may not be.
func checkFrameHead(head []byte) error {
	if len(head) < minFrameHead {
		return nil
	}
	switch m := binary.LittleEndian.Uint32(head); {
	case m&^0xf == magicSkip:
		return fmt.Errorf("%w: a frame to be skipped", ErrMalformed)
	case m != magic:
		return fmt.Errorf("%w: no frame begins with %x", ErrMalformed, head[:4])
	case head[4]&bitsDictionary != 0:
		return fmt.Errorf("%w: a dictionary is asked for", ErrMalformed)
	case head[4]&bitReserved != 0:
		return fmt.Errorf("%w: a reserved bit is set", ErrMalformed)
	}
	return nil
}

// parseFrameHead reads a header that has come, and was checked.
func parseFrameHead(head []byte) (frameHead, error) {
	d := head[4]
	var window uint64
	if windowSize(d) > 0 {
		w := head[minFrameHead]
		base := uint64(1) << (10 + w>>3)
		window = base + base/8*uint64(w&7)
	} else {
		window = max(contentOf(head[minFrameHead:]), minWindow)
	}
	if window > MaxWindow {
		return frameHead{}, fmt.Errorf("%w: a window of %d bytes, more than %d", ErrMalformed, window, MaxWindow)
	}
	return frameHead{int(window), d&bitChecksum != 0}, nil
}

// contentOf reads a frame's content size.
func contentOf(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b)) + 256
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	return math.MaxUint64 // no header says so
}

// block is what the header of a block says.
type block struct {
	last  bool
	empty bool // nothing comes of it
	size  int  // of what follows
}

const (
	rawBlock = iota
	repeatedBlock
	compressedBlock
)

// parseBlock reads the header of a block in a frame.
func parseBlock(b []byte, of frameHead) (block, error) {
	h := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	out := block{last: h&1 != 0, size: h >> 3}
	kind := h >> 1 & 3
	if out.size > min(of.window, maxBlock) {
		return block{}, fmt.Errorf("%w: a block of %d bytes", ErrMalformed, out.size)
	}
	switch kind {
	case rawBlock:
		out.empty = out.size == 0
	case repeatedBlock:
		out.empty = out.size == 0
		out.size = 1
	case compressedBlock:
	default:
		return block{}, fmt.Errorf("%w: a block of a reserved type", ErrMalformed)
	}
	if out.last && of.checksum {
		out.size += checksumBytes
	}
	return out, nil
}
