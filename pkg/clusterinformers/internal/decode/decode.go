// Package decode turns what an API server sends into records of the index.
package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
)

// Encoding is how a member writes objects.
type Encoding int32

// The encodings.
const (
	JSON Encoding = iota
	Protobuf
)

func (e Encoding) String() string {
	if e == Protobuf {
		return "protobuf"
	}
	return "json"
}

// Rules say what of an object is not kept.
type Rules struct {
	Drop   [][]string // field paths
	Redact bool       // values of data, binaryData and stringData become ""
}

// Errors that callers branch on.
var (
	// ErrUnknownField is a protobuf field that the types of this build lack.
	ErrUnknownField = errors.New("unknown protobuf field")
	// ErrTooLarge is a frame beyond the bound.
	ErrTooLarge = errors.New("response is too large")
	// ErrMalformed is anything that does not decode.
	ErrMalformed = errors.New("malformed response")
)

// ListMeta is a list's metadata.
type ListMeta struct {
	ResourceVersion, Continue string
	RemainingItemCount        *int64
}

// Event is one event of a watch.
type Event struct {
	Type             watch.EventType
	Record           aggregate.Record
	InitialEventsEnd bool
	Status           *metav1.Status
	Bytes            int
}

// Decoder decodes objects of one kind.
type Decoder struct {
	gvk       schema.GroupVersionKind
	enc       Encoding
	rules     Rules
	fallbacks uint64
}

// New returns a decoder.
func New(gvk schema.GroupVersionKind, enc Encoding, rules Rules) (*Decoder, error) {
	return &Decoder{gvk: gvk, enc: enc, rules: rules}, nil
}

// Fallbacks returns how many objects the stock path decoded.
func (d *Decoder) Fallbacks() uint64 { return d.fallbacks }

// Object decodes one object.
func (d *Decoder) Object(data []byte, rec *aggregate.Record) error { return d.stock(data, rec) }

// Events reads a watch.
func (d *Decoder) Events(r io.Reader, maxFrame int) *Events {
	return &Events{d: d, r: r, max: maxFrame}
}

// Events is a watch being read.
type Events struct {
	d   *Decoder
	r   io.Reader
	max int
	buf []byte
	pos int
}

// Next reads the next event.
func (e *Events) Next(ev *Event) error {
	if e.d.enc == Protobuf {
		var head [4]byte
		if _, err := io.ReadFull(e.r, head[:]); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if n > e.max {
			return fmt.Errorf("frame of %d bytes: %w", n, ErrTooLarge)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(e.r, b); err != nil {
			return err
		}
		return e.d.stockEvent(b, ev)
	}
	for {
		if i := bytes.IndexByte(e.buf[e.pos:], '\n'); i >= 0 {
			line := e.buf[e.pos : e.pos+i]
			e.pos += i + 1
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			return e.d.stockEvent(line, ev)
		}
		e.buf = append(e.buf[:0:0], e.buf[e.pos:]...)
		e.pos = 0
		if len(e.buf) > e.max {
			return fmt.Errorf("frame of %d bytes: %w", len(e.buf), ErrTooLarge)
		}
		chunk := make([]byte, 64<<10)
		n, err := e.r.Read(chunk)
		e.buf = append(e.buf, chunk[:n]...)
		if n == 0 && err != nil {
			return err
		}
	}
}
