package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
)

// span is one occurrence of a field in the message being read: the bounds of
// its bytes, or the value of a varint in lo.
type span struct {
	lo, hi int
	next   int32 // the next occurrence, an index of spans; 0 if there is none
}

// slot is the chain of a field's occurrences; first is 0 where there is none.
type slot struct{ first, last int32 }

// entry is one entry of a map: bounds of key and value.
type entry struct{ key, keyEnd, lo, hi int }

// transcoder writes protobuf messages as canonical JSON. Like those of canonicalizer, its
// methods report false for anything that they do not handle.
type transcoder struct {
	canonicalizer
	data    []byte
	slots   []slot // stack: a frame per message being written
	spans   []span // stack; element 0 is not used
	entries []entry
	nesting int

	quantities map[string][]byte // JSON by text on the wire; for JSON input, valid ones only
}

// message writes the message data of type p as an object.
func (t *transcoder) message(p *program, data []byte) bool {
	t.data, t.slots, t.nesting = data, t.slots[:0], 0
	t.spans = append(t.spans[:0], span{})
	t.members, t.entries, t.meta = t.members[:0], t.entries[:0], -1
	return t.write(p, 0, len(data), root)
}

// frame scans the message at data[lo:hi] into new slots and returns their start. The caller
// releases them with drop.
func (t *transcoder) frame(p *program, lo, hi int) (base, mark int, ok bool) {
	base, mark = len(t.slots), len(t.spans)
	t.slots = slices.Grow(t.slots, p.slots)[:base+p.slots]
	clear(t.slots[base:])
	t.nesting++
	return base, mark, t.nesting <= maxNesting && t.scan(p.numbers, base, lo, hi)
}

func (t *transcoder) drop(base, mark int) {
	t.slots, t.spans = t.slots[:base], t.spans[:mark]
	t.nesting--
}

// scan records the fields of the message at data[lo:hi].
func (t *transcoder) scan(numbers []number, base, lo, hi int) bool {
	data := t.data[:hi]
	for i := lo; i < hi; {
		tag, n := varint(data[i:])
		if n == 0 {
			return false
		}
		i += n
		num := tag >> 3
		if num >= uint64(len(numbers)) {
			return false
		}
		f := &numbers[num]
		if f.slot == 0 || uint8(tag&7) != f.wire {
			return false
		}
		var s span
		switch f.wire {
		case wireVarint:
			v, n := varint(data[i:])
			if n == 0 {
				return false
			}
			i += n
			s.lo = int(v)
		case wireFixed64:
			if hi-i < 8 {
				return false
			}
			s.lo, s.hi = i, i+8
			i += 8
		default:
			v, n := varint(data[i:])
			if n == 0 || v > uint64(hi-i-n) {
				return false
			}
			i += n
			s.lo, s.hi = i, i+int(v)
			i = s.hi
		}
		at := &t.slots[base+f.slot]
		here := int32(len(t.spans))
		if here < 0 || here == math.MaxInt32 {
			return false
		}
		switch {
		case at.first == 0:
			at.first = here
		case !f.repeated:
			return false // messages would be merged
		default:
			t.spans[at.last].next = here
		}
		at.last = here
		t.spans = append(t.spans, s)
		if f.inline != nil && !t.scan(f.inline, base, s.lo, s.hi) {
			return false
		}
	}
	return true
}

// varint returns the value at the start of b, as generated code decodes it, and its length;
// 0 if there is none.
func varint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	var v uint64
	for i := range min(len(b), 10) {
		c := b[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

func (t *transcoder) write(p *program, lo, hi int, r role) bool {
	base, mark, ok := t.frame(p, lo, hi)
	if !ok {
		return false
	}
	start := len(t.out)
	for i := range p.fields {
		f := &p.fields[i]
		var s slot
		if f.slot > 0 {
			s = t.slots[base+f.slot]
		}
		switch {
		case r == root && f.slot < 0 && f.name == "apiVersion":
			t.out = append(append(t.out, ','), t.apiVersion...)
		case r == root && f.slot < 0 && f.name == "kind":
			t.out = append(append(t.out, ','), t.kind...)
		case s.first == 0:
			t.out = append(t.out, f.absent...)
		case r == metadata && f.name == "managedFields":
			if !t.check(f, s.first) {
				return false
			}
		default:
			of := inner
			if r == root && f.name == "metadata" {
				of = metadata
				t.meta = len(t.out) + len(f.key)
			}
			if !t.field(f, s.first, of) {
				return false
			}
		}
	}
	t.drop(base, mark)
	// Every member starts with a comma: the first comma becomes the brace.
	if len(t.out) == start {
		t.out = append(t.out, '{')
	}
	t.out[start] = '{'
	t.out = append(t.out, '}')
	return true
}

// field writes a member that is on the wire.
func (t *transcoder) field(f *field, first int32, r role) bool {
	s := t.spans[first]
	if !f.repeated && !f.mapped && !f.pointer && (f.omitEmpty && f.empty(s) || f.omitZero && t.zeroTime(f, s)) {
		return true
	}
	t.out = append(t.out, f.key...)
	switch {
	case f.mapped:
		return t.mapping(f, first)
	case f.repeated:
		t.out = append(t.out, '[')
		for i := first; i != 0; {
			s := t.spans[i]
			if i != first {
				t.out = append(t.out, ',')
			}
			if !t.value(&f.value, s, inner) {
				return false
			}
			i = s.next
		}
		t.out = append(t.out, ']')
		return true
	default:
		return t.value(&f.value, s, r)
	}
}

// empty reports whether omitempty leaves the value out.
func (f *field) empty(s span) bool {
	switch f.codec {
	case codecBool, codecInt, codecUint:
		return s.lo == 0
	case codecInt32, codecUint32:
		return uint32(s.lo) == 0
	case codecString, codecBytes:
		return s.lo == s.hi
	default: // structs are never empty
		return false
	}
}

func (t *transcoder) value(v *value, s span, r role) bool {
	switch v.codec {
	case codecString:
		var ok bool
		t.out, ok = appendString(t.out, t.data[s.lo:s.hi])
		return ok
	case codecBool:
		if s.lo != 0 {
			t.out = append(t.out, "true"...)
		} else {
			t.out = append(t.out, "false"...)
		}
		return true
	case codecInt:
		t.out = strconv.AppendInt(t.out, int64(s.lo), 10)
		return true
	case codecInt32:
		t.out = strconv.AppendInt(t.out, int64(int32(s.lo)), 10)
		return true
	case codecUint32:
		t.out = strconv.AppendUint(t.out, uint64(uint32(s.lo)), 10)
		return true
	case codecBytes:
		t.out = append(t.out, '"')
		t.out = base64.StdEncoding.AppendEncode(t.out, t.data[s.lo:s.hi])
		t.out = append(t.out, '"')
		return true
	case codecMessage:
		return t.write(v.sub, s.lo, s.hi, r)
	case codecUint, codecFloat:
		return t.float(v, s)
	default:
		return t.wellKnown(v, s)
	}
}

// float writes numbers that may leave int64, which makes them floats.
func (t *transcoder) float(v *value, s span) bool {
	var buf [32]byte
	num := buf[:0]
	integer := true
	if v.codec == codecUint {
		num = strconv.AppendUint(num, uint64(s.lo), 10)
	} else {
		f := math.Float64frombits(binary.LittleEndian.Uint64(t.data[s.lo:s.hi]))
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return false
		}
		num = appendFloat(num, f)
		_, integer = scanNumber(num, 0)
	}
	var ok bool
	t.out, ok = appendNumber(t.out, num, integer)
	return ok
}

// mapping writes a map in the order of its keys.
func (t *transcoder) mapping(f *field, first int32) bool {
	base := len(t.entries)
	sorted := true
	for i := first; i != 0; i = t.spans[i].next {
		e, ok := t.entry(t.spans[i])
		if !ok {
			return false
		}
		if n := len(t.entries); sorted && n > base {
			last := t.entries[n-1]
			sorted = bytes.Compare(t.data[last.key:last.keyEnd], t.data[e.key:e.keyEnd]) < 0
		}
		t.entries = append(t.entries, e)
	}
	data := t.data
	if !sorted {
		entries := t.entries[base:]
		slices.SortFunc(entries, func(a, b entry) int {
			return bytes.Compare(data[a.key:a.keyEnd], data[b.key:b.keyEnd])
		})
		for i := 1; i < len(entries); i++ {
			a, b := entries[i-1], entries[i]
			if bytes.Equal(data[a.key:a.keyEnd], data[b.key:b.keyEnd]) {
				return false // the last one on the wire wins
			}
		}
	}
	t.out = append(t.out, '{')
	for i := base; i < len(t.entries); i++ {
		e := t.entries[i]
		if i > base {
			t.out = append(t.out, ',')
		}
		var ok bool
		if t.out, ok = appendString(t.out, data[e.key:e.keyEnd]); !ok {
			return false
		}
		t.out = append(t.out, ':')
		if !t.value(&f.value, span{lo: e.lo, hi: e.hi}, inner) {
			return false
		}
	}
	t.entries = t.entries[:base]
	t.out = append(t.out, '}')
	return true
}

// entry reads a map entry, which must be a key and a value in this order, as
// every encoder writes it.
func (t *transcoder) entry(s span) (e entry, ok bool) {
	data := t.data[:s.hi]
	i := s.lo
	if i >= s.hi || data[i] != 1<<3|wireBytes {
		return e, false
	}
	v, n := varint(data[i+1:])
	if i += 1 + n; n == 0 || v > uint64(s.hi-i) {
		return e, false
	}
	e.key, e.keyEnd = i, i+int(v)
	if i = e.keyEnd; i >= s.hi || data[i] != 2<<3|wireBytes {
		return e, false
	}
	v, n = varint(data[i+1:])
	if i += 1 + n; n == 0 || v != uint64(s.hi-i) {
		return e, false
	}
	e.lo, e.hi = i, s.hi
	return e, true
}

// check reads the occurrences of a field that is not written as strictly as if
// it were.
func (t *transcoder) check(f *field, first int32) bool {
	n := len(t.out)
	for i := first; i != 0; i = t.spans[i].next {
		s := t.spans[i]
		switch {
		case f.codec == codecMessage:
			base, mark, ok := t.frame(f.sub, s.lo, s.hi)
			if !ok {
				return false
			}
			for j := range f.sub.fields {
				g := &f.sub.fields[j]
				if g.slot > 0 && t.slots[base+g.slot].first != 0 && !t.check(g, t.slots[base+g.slot].first) {
					return false
				}
			}
			t.drop(base, mark)
		case f.codec == codecRawEmpty:
			if _, ok := t.only(s); !ok {
				return false
			}
		case f.mapped || !t.value(&f.value, s, inner):
			return false
		}
	}
	t.out = t.out[:n]
	return true
}
