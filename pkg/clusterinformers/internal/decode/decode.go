package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// Encoding is the encoding of a member's objects.
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

// Errors that callers branch on.
var (
	// ErrUnknownField is a protobuf field that the types of this build lack:
	// the object is valid, and its JSON would lose nothing.
	ErrUnknownField = errors.New("unknown protobuf field")
	// ErrTooLarge is a frame beyond the bound.
	ErrTooLarge = errors.New("response is too large")
	// ErrMalformed is anything that cannot be decoded.
	ErrMalformed = errors.New("malformed response")
)

// maxKeptBuffer is the largest buffer that is kept for the next object or event: every
// stream has its own, and must not keep that of one huge object forever.
const maxKeptBuffer = 256 << 10

// Decoder decodes objects of one kind. It is not safe for concurrent use.
type Decoder struct {
	gvk      schema.GroupVersionKind
	enc      Encoding
	shaper   *shaper      // nil without rules
	typ      reflect.Type // of the Go struct, for Protobuf
	program  *program     // of the Go struct; nil for JSON of custom kinds
	typeMeta []byte       // the start of an envelope of gvk

	t         transcoder
	fallbacks uint64
}

// New returns a decoder for objects of gvk. Protobuf needs [Supports].
func New(gvk schema.GroupVersionKind, enc Encoding, rules Rules) (*Decoder, error) {
	d := &Decoder{gvk: gvk, enc: enc, shaper: newShaper(rules)}
	var err error
	if d.t.apiVersion, err = headMember("apiVersion", gvk.GroupVersion().String()); err != nil {
		return nil, err
	}
	if d.t.kind, err = headMember("kind", gvk.Kind); err != nil {
		return nil, err
	}
	switch enc {
	case JSON:
		// Without a program, as for custom kinds, types are not known.
		if _, p, err := typed(gvk); err == nil {
			d.program = p
		}
	case Protobuf:
		if d.typ, d.program, err = typed(gvk); err != nil {
			return nil, err
		}
		d.typeMeta = typeMeta(gvk)
	default:
		return nil, fmt.Errorf("encoding %d is not known", enc)
	}
	return d, nil
}

func headMember(name, value string) ([]byte, error) {
	text, ok := appendString([]byte(`"`+name+`":`), []byte(value))
	if !ok || value == "" {
		return nil, fmt.Errorf("%s %q is not valid", name, value)
	}
	return text, nil
}

// Supports reports whether objects of a kind can be decoded from protobuf.
func Supports(gvk schema.GroupVersionKind) bool {
	_, _, err := typed(gvk)
	return err == nil
}

// Fallbacks returns how many objects and lists were decoded by the standard path.
func (d *Decoder) Fallbacks() uint64 { return d.fallbacks }

// Object decodes one object, JSON or protobuf in its envelope. The content of rec is valid
// until the decoder's next call. With [ErrUnfit], too, rec has what could be decoded.
func (d *Decoder) Object(data []byte, rec *aggregate.Record) error {
	d.reset()
	if d.enc == JSON {
		if d.t.document(data, root) {
			return d.finish(rec)
		}
		return d.fallBackJSON(rec, data)
	}
	if raw, ok := d.envelope(data); ok && d.t.message(d.program, raw) {
		return d.finish(rec)
	}
	return d.fallBack(rec, func() (map[string]any, error) { return d.standardEnvelope(data) })
}

// item decodes one protobuf item of a list.
func (d *Decoder) item(data []byte, rec *aggregate.Record) error {
	d.reset()
	if d.t.message(d.program, data) {
		return d.finish(rec)
	}
	return d.fallBack(rec, func() (map[string]any, error) { return d.standardItem(data) })
}

func (d *Decoder) reset() {
	d.t.out = reuse(d.t.out)
	d.t.sorted = reuse(d.t.sorted)
	d.t.members = reuse(d.t.members)
	d.t.slots = reuse(d.t.slots)
	d.t.spans = reuse(d.t.spans)
	d.t.entries = reuse(d.t.entries)
}

// reuse returns the buffer, emptied, or nil when it has grown too large.
func reuse[T any](buf []T) []T {
	var one T
	if uintptr(cap(buf))*unsafe.Sizeof(one) > maxKeptBuffer {
		return nil
	}
	return buf[:0]
}

// finish fills rec from the object that was written, and validates it.
func (d *Decoder) finish(rec *aggregate.Record) error {
	identity(d.t.out, d.t.meta, rec)
	rec.Body = d.t.out
	if d.shaper != nil {
		rec.Body = d.shaper.shape(d.t.out)
	}
	return d.validate(rec)
}

// fallBackJSON decodes JSON by the standard path. Valid JSON that cannot be decoded is a
// failure of the object, not of its response.
func (d *Decoder) fallBackJSON(rec *aggregate.Record, data []byte) error {
	err := d.fallBack(rec, func() (map[string]any, error) { return d.standardJSON(data) })
	if err == nil || errors.Is(err, ErrUnfit) || !json.Valid(data) {
		return err
	}
	identifyLoosely(data, rec)
	return &UnfitError{Why: "it cannot be decoded", cause: err}
}

func (d *Decoder) fallBack(rec *aggregate.Record, stock func() (map[string]any, error)) error {
	m, err := stock()
	if err != nil {
		return err
	}
	d.fallbacks++
	var b bytes.Buffer
	if err := encodeMap(&b, m); err != nil {
		return err
	}
	d.t.out = append(d.t.out[:0], bytes.TrimSuffix(b.Bytes(), newline)...)
	d.t.meta = find(d.t.out, "metadata")
	d.t.foreign = m["apiVersion"] != d.gvk.GroupVersion().String() || m["kind"] != d.gvk.Kind
	err = d.finish(rec)
	if exceedsDepth(d.t.out) {
		return unfit("it is nested more than %d levels deep", maxNesting)
	}
	return err
}

// find returns the start of the value of a member of a canonical object; -1 if it has none.
func find(object []byte, name string) int {
	r := readerOf(object)
	for more := r.Open('{'); more; more = r.Next('}') {
		if key, _ := r.Key(); string(key) == name {
			return r.Pos()
		}
		r.Skip()
	}
	return -1
}

// protobufPrefix is the start of every object in protobuf.
var protobufPrefix = []byte("k8s\x00")

// envelope returns the object in a runtime.Unknown of the decoder's kind.
func (d *Decoder) envelope(data []byte) ([]byte, bool) { return envelope(data, d.typeMeta) }

// envelope returns the raw object of a runtime.Unknown whose type is want.
func envelope(data, want []byte) ([]byte, bool) {
	data, ok := bytes.CutPrefix(data, protobufPrefix)
	if !ok {
		return nil, false
	}
	var raw []byte
	var seen [5]bool
	for len(data) > 0 {
		tag := data[0]
		v, n := varint(data[1:])
		if n == 0 || v > uint64(len(data)-1-n) {
			return nil, false
		}
		bytes := data[1+n : 1+n+int(v)]
		data = data[1+n+int(v):]
		num := tag >> 3
		if tag&7 != wireBytes || num == 0 || num > 4 || seen[num] {
			return nil, false
		}
		seen[num] = true
		switch num {
		case 1:
			if string(bytes) != string(want) {
				return nil, false
			}
		case 2:
			raw = bytes
		}
	}
	return raw, seen[1] && seen[2]
}

// typeMeta returns the TypeMeta of an envelope as encoders write it.
func typeMeta(gvk schema.GroupVersionKind) []byte {
	version := gvk.GroupVersion().String()
	if len(version) > 127 || len(gvk.Kind) > 127 {
		return nil
	}
	b := append([]byte{1<<3 | wireBytes, byte(len(version))}, version...)
	return append(append(b, 2<<3|wireBytes, byte(len(gvk.Kind))), gvk.Kind...)
}

var newline = []byte("\n")

// encodeMap writes canonical JSON and a newline.
func encodeMap(b *bytes.Buffer, m map[string]any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
