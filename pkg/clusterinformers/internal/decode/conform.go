package decode

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checker checks canonical JSON against the Go type of its kind: what passes decodes into
// the type. Fields that the type lacks pass.
type checker struct{ t *transcoder }

// join appends a field to the path of the object that has it.
func join(object, field string) string {
	if field == "" {
		return object
	}
	return object + "." + field
}

// message checks an object. It returns the path of the first field that is not
// of its type, "" for the object itself.
func (c checker) message(r *reader, p *program) (path string, ok bool) {
	switch r.Peek() {
	case '{':
	case 'n':
		r.Skip()
		return "", true
	default:
		return "", false
	}
	i := 0
	for more := r.Open('{'); more; more = r.Next('}') { // in the order of the fields
		_, name := r.key()
		for i < len(p.fields) && p.fields[i].name < name {
			i++
		}
		if i == len(p.fields) || p.fields[i].name != name {
			r.Skip()
			continue
		}
		if path, ok := c.field(r, &p.fields[i]); !ok {
			return join(name, path), false
		}
	}
	return "", true
}

func (c checker) field(r *reader, f *field) (path string, ok bool) {
	first := r.Peek()
	switch {
	case f.untyped, first == 'n' && (f.pointer || f.mapped || f.repeated):
		r.Skip()
		return "", true
	case f.mapped:
		return c.elements(r, '{', &f.value)
	case f.repeated:
		return c.elements(r, '[', &f.value)
	}
	return c.value(r, &f.value)
}

// elements checks the values of a map or list.
func (c checker) elements(r *reader, open byte, v *value) (path string, ok bool) {
	if r.Peek() != open {
		return "", false
	}
	end := open + 2 // } and ] are two after { and [
	for more := r.Open(open); more; more = r.Next(end) {
		if open == '{' {
			r.Key()
		}
		if path, ok := c.value(r, v); !ok {
			return path, false
		}
	}
	return "", true
}

func (c checker) value(r *reader, v *value) (path string, ok bool) {
	first := r.Peek()
	switch v.codec {
	case codecMessage:
		return c.message(r, v.sub)
	case codecOrBool, codecOrArray, codecOrStrings:
		return c.union(r, v)
	case codecStrings:
		if first == 'n' {
			break
		}
		return c.elements(r, '[', &value{codec: codecString})
	}
	return "", c.scalar(v.codec, r.Value())
}

// union checks one of the unions of JSON schemas.
func (c checker) union(r *reader, v *value) (path string, ok bool) {
	first := r.Peek()
	schema, others := v.sub.numbers[1].field, v.sub.numbers[2].field
	if v.codec == codecOrBool {
		schema = others
	}
	switch {
	case first == '{':
		return c.value(r, &schema.value)
	case first == '[' && v.codec != codecOrBool:
		return c.elements(r, '[', &others.value)
	}
	r.Skip()
	return "", v.codec != codecOrBool || first == 't' || first == 'f'
}

func (c checker) scalar(as codec, text []byte) bool {
	isString := text[0] == '"'
	if text[0] == 'n' {
		return as != codecDuration
	}
	switch as {
	case codecString:
		return isString
	case codecBool:
		return text[0] == 't' || text[0] == 'f'
	case codecInt:
		_, err := strconv.ParseInt(string(text), 10, 64)
		return err == nil
	case codecInt32:
		_, err := strconv.ParseInt(string(text), 10, 32)
		return err == nil
	case codecUint:
		_, err := strconv.ParseUint(string(text), 10, 64)
		return err == nil
	case codecUint32:
		_, err := strconv.ParseUint(string(text), 10, 32)
		return err == nil
	case codecFloat:
		return text[0] == '-' || '0' <= text[0] && text[0] <= '9'
	case codecBytes:
		if !isString {
			return false
		}
		var err error
		c.t.sorted, err = base64.StdEncoding.AppendDecode(c.t.sorted[:0], []byte(unquoteValue(text)))
		return err == nil
	case codecIntOrString:
		return isString || c.scalar(codecInt32, text)
	case codecTime:
		return isString && isTime(time.RFC3339, unquoteValue(text))
	case codecMicroTime:
		return isString && isTime(metav1.RFC3339Micro, unquoteValue(text))
	case codecDuration:
		return isString && new(metav1.Duration).UnmarshalJSON(text) == nil
	case codecQuantity:
		return c.quantity(text)
	default: // any JSON
		return true
	}
}

// unquoteValue is unquote of a string in its quotes.
func unquoteValue(text []byte) string {
	raw := text[1 : len(text)-1]
	return unquote(raw, bytes.IndexByte(raw, '\\') >= 0)
}

func isTime(layout, text string) bool {
	_, err := time.Parse(layout, text)
	return err == nil
}

func (c checker) quantity(text []byte) bool {
	b := text
	switch text[0] {
	case '"':
		b = text[1 : len(text)-1]
	case '{', '[', 't', 'f':
		return false
	}
	if _, known := c.t.quantities[string(b)]; known {
		return true
	}
	if !validQuantity(b) || new(resource.Quantity).UnmarshalJSON(text) != nil {
		return false
	}
	if len(b) <= maxQuantityText {
		c.t.cacheQuantity(b, nil)
	}
	return true
}
