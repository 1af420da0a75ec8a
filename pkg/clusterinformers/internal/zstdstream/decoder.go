package zstdstream

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ErrMalformed is of a body that is not zstd, or not as it may be.
var ErrMalformed = errors.New("malformed compression")

// decoder decodes a frame, a block at a time.
type decoder struct {
	zstd *zstd.Decoder
	head frameHead
	lead int    // bytes of the frame's header that in begins with, before its first block
	in   []byte // what has come of the block, from its header on
	src  []byte // what of in zstd has not read
	last bool   // the block that out is of ends the frame
	out  *output
	pos  int // out[pos:end] is decoded and not read
	end  int
}

// output is room for a block, and to notice one that is larger.
type output [maxBlock + 1]byte

// decoders are those that no frame needs. What was made for a larger window than usual is not kept. Most of the time
// all that is decoded has been read: outputs are few.
var (
	decoders sync.Pool
	outputs  = sync.Pool{New: func() any { return new(output) }}
)

const (
	usualWindow = 256 << 10
	usualBlock  = 16 << 10 // as it comes
)

// footprint is about what a decoder holds for a window: a ring of it with room for two blocks; a block as it comes,
// twice, its literals, and what becomes of it; and tables.
func footprint(window int) int64 {
	block := min(window, maxBlock)
	return int64(window+2*block) + 3*int64(block) + maxBlock + 64<<10
}

func newDecoder(head frameHead, raw []byte) (*decoder, error) {
	d, ok := decoders.Get().(*decoder)
	if !ok {
		d = &decoder{}
	}
	d.head, d.lead, d.in, d.src = head, len(raw), append(d.in[:0], raw...), nil
	d.last = false
	if d.zstd != nil {
		return d, d.zstd.Reset(d)
	}
	var err error
	d.zstd, err = zstd.NewReader(d, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(MaxWindow))
	return d, err
}

// unread returns what is decoded and not read.
func (d *decoder) unread() []byte {
	if d.out == nil {
		return nil
	}
	return d.out[d.pos:d.end]
}

// read takes note of n bytes that were read.
func (d *decoder) read(n int) {
	if d.pos += n; d.pos == d.end {
		d.drop()
	}
}

// drop drops what is decoded.
func (d *decoder) drop() {
	if d.out != nil {
		outputs.Put(d.out)
	}
	d.out, d.pos, d.end = nil, 0, 0
}

// free gives the decoder back.
func (d *decoder) free() {
	d.drop()
	if d.head.window <= usualWindow {
		decoders.Put(d)
	}
}

// Read implements io.Reader for zstd, which reads no more than it needs: a block, with what is before and behind it.
func (d *decoder) Read(p []byte) (int, error) {
	if len(d.src) == 0 {
		return 0, io.EOF
	}
	n := copy(p, d.src)
	d.src = d.src[n:]
	return n, nil
}

// missing returns how many bytes are to come until something is known of the block, or all of it is there.
func (d *decoder) missing() (int, block, error) {
	if n := d.lead + blockHead - len(d.in); n > 0 {
		return n, block{}, nil
	}
	b, err := parseBlock(d.in[d.lead:], d.head)
	return d.lead + blockHead + b.size - len(d.in), b, err
}

// next reads the next block, all of which must be read until it is decoded.
func (d *decoder) next(read func([]byte) (int, error)) error {
	for {
		n, b, err := d.missing()
		switch {
		case err != nil:
			return err
		case n == 0 && b.empty && !b.last:
			d.in = d.in[:d.lead] // zstd would go on to the next
			continue
		case n == 0:
			return d.decode(b)
		}
		have := len(d.in)
		if cap(d.in) < have+n {
			d.in = append(make([]byte, 0, have+n), d.in...)
		}
		got, err := read(d.in[have : have+n])
		if d.in = d.in[:have+got]; got > 0 {
			continue
		}
		if err == io.EOF { //nolint:errorlint // as io.Reader has it
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
}

// decode decodes the block that is in.
func (d *decoder) decode(b block) error {
	d.src, d.out = d.in, outputs.Get().(*output)
	n, err := d.zstd.Read(d.out[:])
	switch {
	case err == io.EOF && n == 0 && b.last: //nolint:errorlint // as io.Reader has it
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	case n == 0 || n > maxBlock:
		return fmt.Errorf("%w: a block of %d bytes comes of one of %d", ErrMalformed, n, len(d.in))
	}
	if len(d.src) > 0 {
		return fmt.Errorf("%w: a block is %d bytes shorter than it says", ErrMalformed, len(d.src))
	}
	d.end, d.last = n, b.last
	d.read(0)
	if d.in, d.lead = d.in[:0], 0; cap(d.in) > usualBlock {
		d.in = nil
	}
	return nil
}
