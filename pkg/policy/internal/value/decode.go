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
// document.Value returns. Its strings alias body.
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
	v, err := d.value(m, 0)
	if a != nil {
		clear(d.stack[:cap(d.stack)])
		a.stack = d.stack[:0]
	}
	if err == nil {
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

// value reads the value that is next. m is not nil.
func (d *decoder) value(m *mask.Mask, depth int) (Value, error) {
	switch d.Peek() {
	case '{':
		return d.object(m, depth+1)
	case '[':
		return d.array(m, depth+1)
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

func (d *decoder) object(m *mask.Mask, depth int) (Value, error) {
	if depth > document.MaxDepth {
		return Value{}, document.ErrDepth
	}
	if !m.All && m.Elem == nil && len(m.Fields) == 0 {
		d.Skip()
		return EmptyObject, d.Err()
	}
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
		v, err := d.value(child, depth)
		if err != nil {
			return Value{}, err
		}
		d.stack = append(d.stack, key, v)
	}
	pairs := d.arena.keep(d.stack[base:])
	d.stack = d.stack[:base]
	return ObjectOf(pairs), d.Err()
}

func (d *decoder) array(m *mask.Mask, depth int) (Value, error) {
	if depth > document.MaxDepth {
		return Value{}, document.ErrDepth
	}
	child := m.Element()
	if child == nil {
		d.Skip()
		return EmptyArray, d.Err()
	}
	base := len(d.stack)
	for more := d.Open('['); more; more = d.Next(']') {
		v, err := d.value(child, depth)
		if err != nil {
			return Value{}, err
		}
		d.stack = append(d.stack, v)
	}
	elems := d.arena.keep(d.stack[base:])
	d.stack = d.stack[:base]
	return ArrayOf(elems), d.Err()
}
