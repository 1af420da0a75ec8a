package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// Event is one event of a watch.
type Event struct {
	Type watch.EventType
	// Record is the object of Added, Modified and Deleted; of a Bookmark only
	// its ResourceVersion is set. The ResourceVersion of a Bookmark or a
	// Deleted outlives the decoder's next call.
	Record           aggregate.Record
	Unfit            error          // of Added and Modified: an error that is ErrUnfit, or nil
	InitialEventsEnd bool           // of a Bookmark
	Scope            string         // of a Bookmark of a federator: the state of the scope; "" where it does not say
	Status           *metav1.Status // of an Error
	Bytes            int            // of the frame
}

// Events is a watch being read. It belongs to its Decoder's goroutine.
//
// A reader that has nothing at the moment returns [stream.ErrNothing], and so does Next, which
// goes on from there when it is called again. Until then [Events.Park] releases what is not
// needed.
type Events struct {
	// Charge, if set, is called with the bytes that reading large events allocates or, below
	// 0, releases; its error ends the watch.
	Charge func(bytes int64) error

	charged  int // bytes that Charge was called with
	d        *Decoder
	r        io.Reader
	max      int
	scratch  []byte // to read into, if it is large enough
	buf      []byte
	pos      int // buf[pos:end] has been read and not consumed
	end      int
	searched int   // bytes from pos that have no newline
	last     int   // bytes of the last read
	err      error // of the reader, which has ended
	byValue  bool  // frames end where values do, not lines
	value    valueScanner
}

// Events reads a watch. A frame of more than maxFrame bytes is [ErrTooLarge].
func (d *Decoder) Events(r io.Reader, maxFrame int) *Events {
	return &Events{d: d, r: r, max: maxFrame}
}

// NewEvents is [Decoder.Events] for a watch that is parked.
func NewEvents(r io.Reader, maxFrame int) *Events { return &Events{r: r, max: maxFrame} }

// Use gives a parked watch a decoder, of one kind and encoding each time, and a buffer that it
// reads into until it is parked again.
func (e *Events) Use(d *Decoder, scratch []byte) { e.d, e.scratch = d, scratch }

// Park gives decoder and buffer back. What remains is the part of a frame that has come.
func (e *Events) Park() {
	switch {
	case e.pos == e.end:
		e.buf, e.pos, e.end = nil, 0, 0
	case len(e.scratch) > 0 && &e.buf[0] == &e.scratch[0]:
		e.buf = bytes.Clone(e.buf[e.pos:e.end])
		e.pos, e.end = 0, len(e.buf)
	}
	e.d, e.scratch = nil, nil
	_ = e.setCharge(len(e.buf)) //nolint:errcheck // it is not more than before
}

// A read uses up to readMost; while little data arrives, as on most watches most of the
// time, a stream waits with a buffer of minRead.
const (
	minRead = 4 << 10
	maxRead = 64 << 10
)

// readSize is the power of two between the bounds that leaves room for twice
// what was read last.
func readSize(last int) int {
	size := minRead
	for size < 2*last && size < maxRead {
		size *= 2
	}
	return size
}

// more reads at least one byte.
func (e *Events) more() error {
	if e.err != nil {
		return e.err
	}
	switch {
	case e.pos == e.end:
		// Sized by the last read: the next size is not known, and the wait may be long.
		e.pos, e.end = 0, 0
		if len(e.scratch) > 0 {
			e.buf = e.scratch
		} else if size := readSize(e.last); size < len(e.buf)/2 || size > len(e.buf) {
			e.buf = make([]byte, size)
			if err := e.setCharge(size + e.d.footprint()); err != nil {
				return err
			}
		}
	case e.end == len(e.buf) && e.pos > 0:
		e.end = copy(e.buf, e.buf[e.pos:e.end])
		e.pos = 0
	}
	if e.end == len(e.buf) {
		// A frame that needs more is rejected.
		size := max(minRead, min(2*len(e.buf), e.max+maxRead))
		if err := e.setCharge(len(e.buf) + size + e.d.footprint()); err != nil {
			return err
		}
		buf := make([]byte, size)
		copy(buf, e.buf[:e.end])
		e.buf = buf
	}
	for range 100 {
		n, err := e.r.Read(e.buf[e.end:])
		if errors.Is(err, stream.ErrNothing) {
			return err
		}
		e.end += n
		e.last, e.err = n, err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	e.err = io.ErrNoProgress
	return e.err
}

// Next reads the next event. The end of the stream is io.EOF between events and
// io.ErrUnexpectedEOF within one; the reader's errors are returned unchanged.
func (e *Events) Next(ev *Event) error {
	if err := e.releaseLarge(ev); err != nil {
		return err
	}
	if e.d.enc == Protobuf {
		frame, err := e.frame()
		if err != nil {
			return err
		}
		return e.event(frame, ev, e.d.protobufEvent)
	}
	for !e.byValue {
		line, err := e.line()
		if err != nil {
			return err
		}
		err = e.event(line, ev, e.d.jsonEvent)
		if !errors.Is(err, errFrame) {
			return err
		}
		// The server breaks lines elsewhere: from this line on, frames are delimited by the
		// ends of values.
		e.pos -= len(line)
		e.byValue = true
	}
	raw, err := e.nextValue()
	if err != nil {
		return err
	}
	return e.event(raw, ev, e.d.jsonEvent)
}

// event decodes a frame; the decoded objects are about as large as the frame.
func (e *Events) event(frame []byte, ev *Event, decode func([]byte, *Event) error) error {
	ev.Bytes = len(frame)
	if err := e.setCharge(len(e.buf) + len(frame) + e.d.footprint()); err != nil {
		return err
	}
	return decode(frame, ev)
}

// frame returns the next protobuf frame, which follows its length in 4 bytes, big endian.
func (e *Events) frame() ([]byte, error) {
	if err := e.need(4); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(e.buf[e.pos:]))
	if n > e.max {
		return nil, fmt.Errorf("frame of %d bytes: %w", n, ErrTooLarge)
	}
	if err := e.need(4 + n); err != nil {
		return nil, err
	}
	frame := e.buf[e.pos+4 : e.pos+4+n]
	e.pos += 4 + n
	return frame, nil
}

// need reads until n bytes are there.
func (e *Events) need(n int) error {
	for e.end-e.pos < n {
		if err := e.more(); err != nil {
			if errors.Is(err, io.EOF) && e.end > e.pos {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// line returns the next line that is not blank, with its newline if it has one. At the end
// of the stream that is the rest.
func (e *Events) line() ([]byte, error) {
	for {
		rest := e.buf[e.pos:e.end]
		n := bytes.IndexByte(rest[e.searched:], '\n') + 1
		switch {
		case n > 0:
			n += e.searched
		case errors.Is(e.err, io.EOF):
			n = len(rest)
		}
		if n > e.max || len(rest) > e.max && n == 0 {
			return nil, fmt.Errorf("frame of more than %d bytes: %w", e.max, ErrTooLarge)
		}
		if n > 0 {
			e.pos += n
			e.searched = 0
			if len(bytes.TrimLeft(rest[:n], " \t\r\n")) > 0 {
				return rest[:n], nil
			}
			continue
		}
		e.searched = len(rest)
		if err := e.more(); err != nil && (!errors.Is(err, io.EOF) || e.pos == e.end) {
			return nil, err
		}
	}
}

// nextValue returns the next value, which must be an object.
func (e *Events) nextValue() ([]byte, error) {
	for {
		if e.value.at == 0 {
			e.pos = e.end - len(bytes.TrimLeft(e.buf[e.pos:e.end], " \t\r\n"))
		}
		rest := e.buf[e.pos:e.end]
		if len(rest) > 0 && rest[0] != '{' {
			return nil, fmt.Errorf("%w: an event begins with %q", ErrMalformed, rest[:1])
		}
		n := e.value.end(rest)
		if n > e.max || n == 0 && len(rest) > e.max {
			return nil, fmt.Errorf("frame of more than %d bytes: %w", e.max, ErrTooLarge)
		}
		if n > 0 {
			e.pos += n
			e.value = valueScanner{}
			return rest[:n], nil
		}
		if err := e.more(); err != nil {
			if errors.Is(err, io.EOF) && e.pos < e.end {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// valueScanner finds the end of an object in JSON that may not be valid.
type valueScanner struct {
	at, depth       int
	quoted, escaped bool
}

// end returns the length of the object that b begins with, 0 where b does not have its end. The
// next b begins with this one.
func (v *valueScanner) end(b []byte) int {
	for ; v.at < len(b); v.at++ {
		switch c := b[v.at]; {
		case v.escaped:
			v.escaped = false
		case v.quoted:
			v.quoted, v.escaped = c != '"', c == '\\'
		case c == '"':
			v.quoted = true
		case c == '{' || c == '[':
			v.depth++
		case c == '}' || c == ']':
			if v.depth--; v.depth == 0 {
				return v.at + 1
			}
		}
	}
	return 0
}

// errFrame is a frame that is not one event.
var errFrame = fmt.Errorf("%w: not an event", ErrMalformed)

var (
	eventHead   = []byte(`{"type":"`)
	eventMiddle = []byte(`","object":`)
)

// cutEvent splits an event in the form that API servers write. Its object is validated by
// the object's decoder.
func cutEvent(b []byte) (typ watch.EventType, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(b, eventHead)
	if !ok || b[len(b)-1] != '}' {
		return "", nil, false
	}
	end := bytes.IndexByte(rest[:min(len(rest), 16)], '"')
	if end < 0 {
		return "", nil, false
	}
	typ = eventType(rest[:end])
	object, ok = bytes.CutPrefix(rest[end:len(rest)-1], eventMiddle)
	return typ, object, ok && typ != "" && typ != watch.Error
}

// eventType returns the event type of a name; "" for any other.
func eventType(name []byte) watch.EventType {
	switch string(name) {
	case string(watch.Added):
		return watch.Added
	case string(watch.Modified):
		return watch.Modified
	case string(watch.Deleted):
		return watch.Deleted
	case string(watch.Bookmark):
		return watch.Bookmark
	case string(watch.Error):
		return watch.Error
	default:
		return ""
	}
}

// jsonEvent decodes one event. The error is errFrame if b is not a single value.
func (d *Decoder) jsonEvent(b []byte, ev *Event) error {
	frame := bytes.TrimRight(b, " \t\r\n")
	if typ, object, ok := cutEvent(frame); ok {
		d.reset()
		if d.t.document(object, root) {
			ev.Type = typ
			d.finishEvent(ev, d.finish(&ev.Record))
			return nil
		}
	}
	var we metav1.WatchEvent
	if !json.Valid(b) {
		return errFrame
	}
	if err := utiljson.Unmarshal(b, &we); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if ev.Type = eventType([]byte(we.Type)); ev.Type == watch.Error {
		ev.Status = &metav1.Status{}
		if err := utiljson.Unmarshal(we.Object.Raw, ev.Status); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		return nil
	}
	return d.objectEvent(we.Type, we.Object.Raw, ev)
}

// objectEvent decodes the object of an event.
func (d *Decoder) objectEvent(typ string, object []byte, ev *Event) error {
	if ev.Type == "" {
		return fmt.Errorf("%w: event of type %.100q", ErrMalformed, typ)
	}
	err := d.Object(object, &ev.Record)
	if err != nil && (!errors.Is(err, ErrUnfit) || ev.Type == watch.Bookmark && errors.Is(err, ErrMalformed)) {
		return err
	}
	d.finishEvent(ev, err)
	return nil
}

// finishEvent fits the record to the type of the event.
func (d *Decoder) finishEvent(ev *Event, unfit error) {
	switch ev.Type {
	case watch.Added, watch.Modified:
		ev.Unfit = unfit
	case watch.Bookmark:
		ev.InitialEventsEnd, ev.Scope = d.bookmarkAnnotations()
		ev.Record = aggregate.Record{
			ResourceVersion: strings.Clone(ev.Record.ResourceVersion),
			Labels:          ev.Record.Labels[:0], Owners: ev.Record.Owners[:0],
		}
	case watch.Deleted:
		ev.Record.ResourceVersion = strings.Clone(ev.Record.ResourceVersion)
	}
}

// bookmarkAnnotations returns what the last decoded object says in annotations: whether the initial events end, and
// in which state a federator has the scope.
func (d *Decoder) bookmarkAnnotations() (end bool, scope string) {
	if d.t.meta < 0 || d.t.out[d.t.meta] != '{' {
		return false, ""
	}
	r := readerOf(d.t.out[d.t.meta:])
	valid := true
	for more := r.Open('{'); more; more = r.Next('}') {
		if key, _ := r.Key(); string(key) != "annotations" || r.Peek() != '{' {
			r.Skip()
			continue
		}
		for more := r.Open('{'); more; more = r.Next('}') {
			key, _ := r.Key()
			switch c := r.Peek(); {
			case c != '"' && c != 'n':
				valid = false
				r.Skip()
			case string(key) == metav1.InitialEventsAnnotationKey:
				end = r.text() == "true"
			case string(key) == federation.ScopeAnnotation:
				scope = strings.Clone(r.text())
			default:
				r.Skip()
			}
		}
	}
	if !valid {
		return false, ""
	}
	return end, scope
}

// protobufEvent decodes one metav1.WatchEvent.
func (d *Decoder) protobufEvent(b []byte, ev *Event) error {
	typ, raw, ok := cutWatchEvent(b)
	if !ok {
		var err error
		if typ, raw, err = standardWatchEvent(b); err != nil {
			return err
		}
	}
	if ev.Type = eventType(typ); ev.Type == watch.Error {
		var err error
		ev.Status, err = standardStatus(raw)
		return err
	}
	return d.objectEvent(string(typ), raw, ev)
}

// cutWatchEvent splits an event in the form that encoders write: type, then the object in a
// RawExtension, both present.
func cutWatchEvent(b []byte) (typ, raw []byte, ok bool) {
	num, wire, typ, b, ok := nextField(b)
	if !ok || num != 1 || wire != wireBytes {
		return nil, nil, false
	}
	num, wire, object, b, ok := nextField(b)
	if !ok || num != 2 || wire != wireBytes || len(b) > 0 {
		return nil, nil, false
	}
	num, wire, raw, b, ok = nextField(object)
	return typ, raw, ok && num == 1 && wire == wireBytes && len(b) == 0
}

func standardWatchEvent(b []byte) (typ, raw []byte, err error) {
	defer recovered(&err)
	var we metav1.WatchEvent
	if err := we.Unmarshal(b); err != nil {
		return nil, nil, fmt.Errorf("%w: event: %w", ErrMalformed, err)
	}
	return []byte(we.Type), we.Object.Raw, nil
}

func standardStatus(raw []byte) (status *metav1.Status, err error) {
	defer recovered(&err)
	raw, err = openEnvelope(raw, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	if err != nil {
		return nil, err
	}
	status = &metav1.Status{}
	if err := status.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("%w: status: %w", ErrMalformed, err)
	}
	return status, nil
}
