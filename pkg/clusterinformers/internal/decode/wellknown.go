package decode

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wellKnown writes the types with their own JSON encoding.
func (t *transcoder) wellKnown(v *value, s span) bool {
	switch v.codec {
	case codecTime:
		return t.time(s, false)
	case codecMicroTime:
		return t.time(s, true)
	case codecDuration:
		n, ok := t.fields(s, wireVarint, -1, -1)
		if !ok {
			return false
		}
		t.out = append(t.out, '"')
		t.out = append(t.out, time.Duration(n[0].lo).String()...)
		t.out = append(t.out, '"')
		return true
	case codecQuantity:
		return t.quantity(s)
	case codecIntOrString:
		return t.intOrString(s)
	case codecRaw, codecRawEmpty:
		return t.raw(v, s)
	case codecStrings:
		return t.strings(s)
	default:
		return t.schema(v, s)
	}
}

// fields reads a message of up to three singular fields of the given wire
// types, numbered from 1; -1 is no field. Those absent are zero; hi tells an
// absent field of bytes (0) from an empty one.
func (t *transcoder) fields(s span, wires ...int) (f [3]span, ok bool) {
	data := t.data[:s.hi]
	var seen [3]bool
	for i := s.lo; i < s.hi; {
		tag := data[i]
		i++
		num := int(tag>>3) - 1
		if num < 0 || num >= len(wires) || wires[num] != int(tag&7) || seen[num] {
			return f, false
		}
		seen[num] = true
		v, n := varint(data[i:])
		if n == 0 {
			return f, false
		}
		i += n
		if tag&7 == wireVarint {
			f[num].lo = int(v)
			continue
		}
		if v > uint64(s.hi-i) {
			return f, false
		}
		f[num].lo, f[num].hi = i, i+int(v)
		i = f[num].hi
	}
	return f, true
}

// only reads a message whose only field is bytes. An absent field has hi 0.
func (t *transcoder) only(s span) (span, bool) {
	f, ok := t.fields(s, wireBytes)
	return f[0], ok
}

const (
	zeroSeconds = -62135596800 // of the zero time.Time
	lastSecond  = 253402300799 // of the year 9999
)

// instant reads a Timestamp. No bytes at all are the zero time.
func (t *transcoder) instant(s span) (seconds int64, nanos int32, ok bool) {
	if s.lo == s.hi {
		return zeroSeconds, 0, true
	}
	f, ok := t.fields(s, wireVarint, wireVarint)
	return int64(f[0].lo), int32(f[1].lo), ok
}

// zeroTime reports whether a time is valid and the zero time.
func (t *transcoder) zeroTime(f *field, s span) bool {
	seconds, nanos, ok := t.instant(s)
	if f.codec == codecTime {
		nanos = 0
	}
	return ok && seconds == zeroSeconds && nanos/1000 == 0
}

func (t *transcoder) time(s span, micro bool) bool {
	seconds, nanos, ok := t.instant(s)
	if !ok || seconds < zeroSeconds || seconds > lastSecond || nanos < 0 || nanos >= 1e9 {
		return false
	}
	if !micro {
		nanos = 0
	}
	nanos -= nanos % 1000
	if seconds == zeroSeconds && nanos == 0 {
		t.out = append(t.out, "null"...)
		return true
	}
	t.out = append(t.out, '"')
	if micro {
		t.out = time.Unix(seconds, int64(nanos)).UTC().AppendFormat(t.out, metav1.RFC3339Micro)
	} else {
		t.out = appendTime(t.out, seconds)
	}
	t.out = append(t.out, '"')
	return true
}

// appendTime appends seconds since 1970 in the years 1 to 9999 as RFC 3339 in
// UTC. The date follows Howard Hinnant's civil_from_days.
func appendTime(dst []byte, seconds int64) []byte {
	const day = 24 * 60 * 60
	// Days and seconds since 0000-03-01, so that neither is negative.
	z := uint64(seconds - (-719468 * day))
	days, rest := z/day, z%day
	era := days / 146097
	doe := days % 146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d := doy - (153*mp+2)/5 + 1
	m := mp + 3
	y := era*400 + yoe
	if m > 12 {
		m -= 12
		y++
	}
	two := func(n uint64) (byte, byte) { return byte('0' + n/10), byte('0' + n%10) }
	y1, y2 := two(y / 100)
	y3, y4 := two(y % 100)
	m1, m2 := two(m)
	d1, d2 := two(d)
	h1, h2 := two(rest / 3600)
	i1, i2 := two(rest / 60 % 60)
	s1, s2 := two(rest % 60)
	return append(dst, y1, y2, y3, y4, '-', m1, m2, '-', d1, d2, 'T', h1, h2, ':', i1, i2, ':', s1, s2, 'Z')
}

const (
	maxQuantities   = 4096 // cached per decoder
	maxQuantityText = 32   // bytes of one that is cached
)

func (t *transcoder) quantity(s span) bool {
	text, ok := t.only(s)
	if !ok {
		return false
	}
	b := t.data[text.lo:text.hi]
	if j, ok := t.quantities[string(b)]; ok {
		t.out = append(t.out, j...)
		return true
	}
	if !validQuantity(b) {
		return false
	}
	var q resource.Quantity
	if text.hi != 0 {
		var err error
		if q, err = resource.ParseQuantity(string(b)); err != nil {
			return false
		}
	} else {
		b = nil
	}
	j, err := q.MarshalJSON()
	if err != nil {
		return false
	}
	t.out = append(t.out, j...)
	// An absent text and an empty one, which is an error, share a key: only non-empty texts
	// are cached.
	if 0 < len(b) && len(b) <= maxQuantityText {
		t.cacheQuantity(b, j)
	}
	return true
}

// cacheQuantity caches the JSON of a quantity.
func (t *transcoder) cacheQuantity(text, inJSON []byte) {
	if t.quantities == nil || len(t.quantities) >= maxQuantities {
		t.quantities = map[string][]byte{}
	}
	t.quantities[string(text)] = inJSON
}

func (t *transcoder) intOrString(s span) bool {
	f, ok := t.fields(s, wireVarint, wireVarint, wireBytes)
	switch {
	case !ok:
		return false
	case f[0].lo == 0:
		return t.value(&value{codec: codecInt32}, f[1], inner)
	case f[0].lo == 1:
		return t.value(&value{codec: codecString}, f[2], inner)
	default:
		return false
	}
}

// raw writes embedded JSON.
func (t *transcoder) raw(v *value, s span) bool {
	f, ok := t.only(s)
	switch {
	case !ok:
		return false
	case f.hi == 0 || v.codec == codecRawEmpty && f.lo == f.hi:
		t.out = append(t.out, "null"...)
		return true
	}
	// The members are the canonicalizer's own stack: nothing of this message is on it.
	return t.document(t.data[f.lo:f.hi], inner)
}

// strings writes a message that is a list of strings. Without any it is empty, not null: it
// is the value of a map, which generated code allocates first.
func (t *transcoder) strings(s span) bool {
	data := t.data[:s.hi]
	t.out = append(t.out, '[')
	for i := s.lo; i < s.hi; {
		if data[i] != 1<<3|wireBytes {
			return false
		}
		v, n := varint(data[i+1:])
		if i += 1 + n; n == 0 || v > uint64(s.hi-i) {
			return false
		}
		var ok bool
		if t.out, ok = appendString(t.out, data[i:i+int(v)]); !ok {
			return false
		}
		if i += int(v); i < s.hi {
			t.out = append(t.out, ',')
		}
	}
	t.out = append(t.out, ']')
	return true
}

// schema writes the unions of JSON schemas.
func (t *transcoder) schema(v *value, s span) bool {
	base, mark, ok := t.frame(v.sub, s.lo, s.hi)
	if !ok {
		return false
	}
	one, other := v.sub.numbers[1], v.sub.numbers[2]
	a, b := t.slots[base+one.slot], t.slots[base+other.slot]
	schema := func(f *field, s slot) bool { return t.value(&f.value, t.spans[s.first], inner) }
	switch {
	case v.codec == codecOrBool && b.first != 0:
		ok = schema(other.field, b)
	case v.codec == codecOrBool:
		allows := a.first != 0 && t.spans[a.first].lo != 0
		t.out = append(t.out, strconvBool(allows)...)
	case b.first != 0:
		list := *other.field
		list.key = nil
		ok = t.field(&list, b.first, inner) && (a.first == 0 || t.check(one.field, a.first))
	case a.first != 0:
		ok = schema(one.field, a)
	default:
		t.out = append(t.out, "null"...)
	}
	t.drop(base, mark)
	return ok
}

func strconvBool(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
