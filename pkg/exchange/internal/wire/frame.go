package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// Type is the type of a frame.
type Type byte

// The frames.
const (
	TypeHello    Type = iota + 1 // begins a stream
	TypeBegin                    // begins a batch
	TypeMember                   // begins what a batch has of a member
	TypeGone                     // a member that is not exported any more
	TypeScope                    // begins what a batch has of a scope
	TypeNoScope                  // a scope that a member has no more
	TypeRecord                   // an object
	TypeDelete                   // an object that is not exported any more
	TypeEnd                      // ends what a batch has of a member: its frontier
	TypeFrontier                 // ends a batch, or says that there is none
	TypePing                     // says that nothing is known yet, or that something takes long
	TypeInterest                 // what an importer asks for: the only one that it sends
	endOfTypes
)

var names = [...]string{"", "hello", "begin", "member", "gone", "scope", "noscope", "record", "delete", "end", "frontier", "ping", "interest"}

// String returns the name of a type.
func (t Type) String() string {
	if t == 0 || t >= endOfTypes {
		return fmt.Sprintf("type %d", byte(t))
	}
	return names[t]
}

// MalformedError is what is no such frame, or comes where it must not.
type MalformedError struct {
	Frame  int64 // its number in the stream, from 1
	Offset int64 // of its first byte, in what was decompressed
	Type   Type
	Reason string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("frame %d (%s) at byte %d: %s", e.Frame, e.Type, e.Offset, e.Reason)
}

// checksumBytes are those of the hash that ends a frontier, of a member or of all, and what is asked for: of what came before it in the stream.
const checksumBytes = 8

func (t Type) checked() bool { return t == TypeFrontier || t == TypeEnd || t == TypeInterest }

// Writer writes frames.
type Writer struct {
	to     io.Writer
	sum    *xxhash.Digest
	header []byte
	Bytes  int64 // that were written
}

// NewWriter returns a writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to, sum: xxhash.New()} }

// Frame writes a frame. Those that end something get the hash of what was written.
func (w *Writer) Frame(t Type, payload []byte) error {
	hash(w.sum, t, payload)
	n := len(payload)
	if t.checked() {
		n += checksumBytes
	}
	w.header = binary.AppendUvarint(append(w.header[:0], byte(t)), uint64(n))
	if err := w.write(w.header); err != nil {
		return err
	}
	if err := w.write(payload); err != nil {
		return err
	}
	if t.checked() {
		return w.write(binary.LittleEndian.AppendUint64(w.header[:0], w.sum.Sum64()))
	}
	return nil
}

func (w *Writer) write(p []byte) error {
	n, err := w.to.Write(p)
	w.Bytes += int64(n)
	return err
}

func hash(sum *xxhash.Digest, t Type, payload []byte) {
	_, _ = sum.Write([]byte{byte(t)}) //nolint:errcheck // never fails
	_, _ = sum.Write(payload)         //nolint:errcheck // never fails
}

// Reader reads frames.
type Reader struct {
	from    *bufio.Reader
	limit   int // of a payload
	sum     *xxhash.Digest
	payload []byte
	at      MalformedError // the frame that was read last
	next    int64          // the offset of the next
}

// NewReader returns a reader of frames whose payloads have no more than limit bytes.
func NewReader(from io.Reader, limit int) *Reader {
	return &Reader{from: bufio.NewReaderSize(from, 16<<10), limit: limit, sum: xxhash.New()}
}

// Malformed returns an error about the frame that was read last.
func (r *Reader) Malformed(reason string) error {
	at := r.at
	at.Reason = reason
	return &at
}

// Next returns the next frame. Its payload, without a hash that has been checked, is valid until the next call. Errors other than a [MalformedError] are those of the connection; io.EOF is one between two frames.
func (r *Reader) Next() (Type, []byte, error) {
	r.at = MalformedError{Frame: r.at.Frame + 1, Offset: r.next}
	b, err := r.from.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	t := Type(b)
	if r.at.Type = t; t == 0 || t >= endOfTypes {
		return 0, nil, r.Malformed("there is no such type")
	}
	n, err := r.length()
	if err != nil {
		return 0, nil, err
	}
	if n > uint64(r.limit) {
		return 0, nil, r.Malformed(fmt.Sprintf("its %d bytes exceed %d", n, r.limit))
	}
	if err := r.fill(int(n)); err != nil {
		return 0, nil, cut(err)
	}
	r.next += 1 + int64(len(binary.AppendUvarint(nil, n))) + int64(n)
	p := r.payload
	if t == TypePing && n > 0 {
		return 0, nil, r.Malformed("it has a payload")
	}
	if !t.checked() {
		hash(r.sum, t, p)
		return t, p, nil
	}
	if len(p) < checksumBytes {
		return 0, nil, r.Malformed("it is too short")
	}
	p, want := p[:len(p)-checksumBytes], p[len(p)-checksumBytes:]
	hash(r.sum, t, p)
	if r.sum.Sum64() != binary.LittleEndian.Uint64(want) {
		return 0, nil, r.Malformed("the stream is not what was sent")
	}
	return t, p, nil
}

// chunk is how much of a payload is made room for before it has come.
const chunk = 64 << 10

func (r *Reader) fill(n int) error {
	if cap(r.payload) > 16*chunk && n < chunk {
		r.payload = nil // a large one is rare
	}
	r.payload = r.payload[:0]
	for len(r.payload) < n {
		have := len(r.payload)
		more := min(n-have, max(chunk, have))
		r.payload = append(r.payload, make([]byte, more)...)
		if _, err := io.ReadFull(r.from, r.payload[have:]); err != nil {
			return err
		}
	}
	return nil
}

// length reads the length of a payload, in as many bytes as it takes and no more.
func (r *Reader) length() (n uint64, err error) {
	for shift := 0; shift < 35; shift += 7 {
		b, err := r.from.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		n |= uint64(b&0x7f) << shift
		if b == 0 && shift > 0 {
			break
		}
		if b < 0x80 {
			return n, nil
		}
	}
	return 0, r.Malformed("its length is none")
}

// cut returns the error of a stream that ends in a frame.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
