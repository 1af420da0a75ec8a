package value

import (
	"fmt"
	"unsafe"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// Decode returns the parts of a body that m reads, undefined for a nil mask: what
// document.Value returns. Its strings alias body, but for keys that m names. It reads no further
// than the last of what m reads, so that what is malformed behind it is not seen.
func Decode(a *Arena, body []byte, m *mask.Mask) (Value, error) {
	return decode(a, body, m, false)
}

// DecodeCopy is Decode of what outlives body, and every Arena.
func DecodeCopy(body []byte, m *mask.Mask) (Value, error) {
	return decode(nil, body, m, true)
}

func decode(a *Arena, body []byte, m *mask.Mask, copies bool) (Value, error) {
	if m == nil {
		return Value{}, nil
	}
	if len(body) > document.MaxSize {
		return Value{}, fmt.Errorf("%w: %d bytes", document.ErrSize, len(body))
	}
	d := decoder{Reader: canonjson.NewReader(body), arena: a, copies: copies, size: len(body)}
	if a != nil {
		d.stack = a.stack[:0]
	}
	v, err := d.value(m, 0, true)
	if a != nil {
		clear(d.stack[:cap(d.stack)])
		a.stack = d.stack[:0]
	}
	if err == nil && !d.done {
		err = d.End()
	}
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

type decoder struct {
	canonjson.Reader
	arena  *Arena
	stack  []Value // the elements of the collections being read
	copies bool
	text   []byte // copies of strings, many to an allocation
	size   int    // of the body
	done   bool   // nothing is read of what follows
}

// keep returns what lives as long as the value.
func (d *decoder) keep(raw []byte) []byte {
	if !d.copies {
		return raw
	}
	if cap(d.text)-len(d.text) < len(raw) {
		d.text = make([]byte, 0, max(len(raw), min(512, d.size-d.Pos()+len(raw))))
	}
	at := len(d.text)
	d.text = append(d.text, raw...)
	return d.text[at:len(d.text):len(d.text)]
}

// value reads the value that is next. m is not nil. last says that nothing is read behind it.
func (d *decoder) value(m *mask.Mask, depth int, last bool) (Value, error) {
	switch d.Peek() {
	case '{':
		if depth++; depth > document.MaxDepth {
			return Value{}, document.ErrDepth
		}
		if m.All || m.Elem != nil {
			return d.object(m, depth)
		}
		return d.fields(m.Sorted(), depth, last)
	case '[':
		if depth++; depth > document.MaxDepth {
			return Value{}, document.ErrDepth
		}
		return d.array(m, depth)
	case '"':
		raw, escaped := d.Text()
		if raw == nil {
			return Value{}, d.Err()
		}
		return d.textOf(raw, escaped)
	case 't':
		d.Literal("true")
		return True, d.Err()
	case 'f':
		d.Literal("false")
		return False, d.Err()
	case 'n':
		d.Literal("null")
		return NullValue, d.Err()
	}
	raw := d.Number()
	if raw == nil {
		return Value{}, d.Err()
	}
	v := Numeral(unsafe.String(unsafe.SliceData(raw), len(raw)))
	if v.kind == Number {
		if _, err := ast.NumberChecked(string(raw)); err != nil {
			return Value{}, fmt.Errorf("%w: %w", document.ErrSyntax, err)
		}
		raw = d.keep(raw)
		v.p = unsafe.Pointer(unsafe.SliceData(raw))
	}
	return v, nil
}

func (d *decoder) textOf(raw []byte, escaped bool) (Value, error) {
	if escaped {
		s, err := canonjson.Unquote(raw)
		return Text(s), err
	}
	return bytesText(d.keep(raw)), nil
}

// object reads an object under a mask that reads fields of any name.
func (d *decoder) object(m *mask.Mask, depth int) (Value, error) {
	base := len(d.stack)
	for more := d.Open('{'); more; more = d.Next('}') {
		raw, escaped := d.Key()
		if raw == nil {
			return Value{}, d.Err()
		}
		child := m
		if !m.All {
			var err error
			if child, err = document.Below(m, raw, escaped); err != nil {
				return Value{}, err
			}
			if child == nil {
				d.Skip()
				continue
			}
		}
		key, err := d.textOf(raw, escaped)
		if err != nil {
			return Value{}, err
		}
		if n := len(d.stack); n > base && d.stack[n-2].Str() >= key.Str() {
			return Value{}, fmt.Errorf("%w: its keys are not in order", document.ErrSyntax)
		}
		v, err := d.value(child, depth, false)
		if err != nil {
			return Value{}, err
		}
		d.stack = append(d.stack, key, v)
	}
	return d.objectOf(base)
}

// objectOf takes an object's pairs from the stack.
func (d *decoder) objectOf(base int) (Value, error) {
	pairs := d.arena.keep(d.stack[base:])
	d.stack = d.stack[:base]
	return ObjectOf(pairs), d.Err()
}

// fields reads those fields of an object, which are in order as its keys are.
func (d *decoder) fields(wanted []mask.Field, depth int, last bool) (Value, error) {
	if len(wanted) == 0 {
		if d.done = last; !last {
			d.Skip()
		}
		return EmptyObject, d.Err()
	}
	base := len(d.stack)
	var keys canonjson.Keys
	for more := d.Open('{'); more; more = d.Next('}') {
		name, err := keys.Next(&d.Reader)
		if err != nil {
			return Value{}, err
		}
		for len(wanted) > 0 && wanted[0].Name < name {
			wanted = wanted[1:]
		}
		switch {
		case len(wanted) > 0 && wanted[0].Name == name:
			field := wanted[0]
			wanted = wanted[1:]
			v, err := d.value(field.Mask, depth, last && len(wanted) == 0)
			if err != nil {
				return Value{}, err
			}
			d.stack = append(d.stack, Text(field.Name), v)
		case len(wanted) > 0 || !last:
			d.Skip()
		}
		if len(wanted) == 0 {
			if !last {
				d.Leave()
			}
			break
		}
	}
	d.done = last && len(wanted) == 0
	return d.objectOf(base)
}

func (d *decoder) array(m *mask.Mask, depth int) (Value, error) {
	child := m.Element()
	if child == nil {
		d.Skip()
		return EmptyArray, d.Err()
	}
	base := len(d.stack)
	for more := d.Open('['); more; more = d.Next(']') {
		v, err := d.value(child, depth, false)
		if err != nil {
			return Value{}, err
		}
		d.stack = append(d.stack, v)
	}
	elems := d.arena.keep(d.stack[base:])
	d.stack = d.stack[:base]
	return ArrayOf(elems), d.Err()
}
