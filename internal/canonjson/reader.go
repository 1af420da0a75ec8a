package canonjson

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrSyntax is the error of bytes that are not canonical JSON.
var ErrSyntax = errors.New("not canonical JSON")

// Reader reads a value of canonical JSON from its start to its end. The zero Reader
// reads nothing.
type Reader struct {
	in     []byte // ends where reading failed
	pos    int
	size   int // of all that there was to read
	failed bool
}

// NewReader returns a Reader of b.
func NewReader(b []byte) Reader { return Reader{in: b, size: len(b)} }

// Pos returns the index of the next byte.
func (r *Reader) Pos() int { return r.pos }

// Peek returns the next byte, which tells what value starts there; 0 where there is
// none.
func (r *Reader) Peek() byte {
	if r.pos < len(r.in) {
		return r.in[r.pos]
	}
	return 0
}

// Err returns what the Reader failed on, an [ErrSyntax]; nil if it did not.
func (r *Reader) Err() error {
	if r.failed {
		return fmt.Errorf("%w: at byte %d of %d", ErrSyntax, r.pos, r.size)
	}
	return nil
}

// End returns an error unless all was read.
func (r *Reader) End() error {
	if r.pos != r.size {
		r.fail()
	}
	return r.Err()
}

// fail lets the Reader stand still where it is.
func (r *Reader) fail() {
	r.failed = true
	r.in = r.in[:r.pos]
}

// Open steps into the object or array whose opening bracket is next, and reports
// whether there is anything in it; an empty one is read to its end.
//
//	for more := r.Open('{'); more; more = r.Next('}') {
//		key, _ := r.Key()
//		… // read or skip the value
//	}
func (r *Reader) Open(bracket byte) bool {
	if r.pos >= len(r.in) || r.in[r.pos] != bracket {
		r.fail()
		return false
	}
	r.pos++
	if r.pos < len(r.in) && r.in[r.pos] == bracket+2 { // } and ] are two after { and [
		r.pos++
		return false
	}
	return true
}

// Next steps to the next member or element, behind a value that was read, and
// reports whether there is one; it steps over the closing bracket where there is
// none.
func (r *Reader) Next(bracket byte) bool {
	if r.pos < len(r.in) {
		switch r.in[r.pos] {
		case ',':
			r.pos++
			return true
		case bracket:
			r.pos++
			return false
		}
	}
	r.fail()
	return false
}

// Leave steps over what is left of the object or array behind a value of it that was read, and
// over its closing bracket.
func (r *Reader) Leave() {
	if c := r.Peek(); c != ',' && c != '}' && c != ']' {
		r.fail()
		return
	}
	r.to(skipOut(r.in, r.pos, 1))
}

// Key reads a key and its colon. It returns what Text does.
func (r *Reader) Key() (raw []byte, escaped bool) {
	raw, escaped = r.Text()
	if r.pos >= len(r.in) || r.in[r.pos] != ':' {
		r.fail()
		return nil, false
	}
	r.pos++
	return raw, escaped
}

// Keys are those of one object, which have to be in order.
type Keys struct {
	last string
	any  bool
}

// Next reads a key and its colon. The name aliases what is read unless it has escapes.
func (k *Keys) Next(r *Reader) (name string, err error) {
	raw, escaped := r.Key()
	if raw == nil {
		return "", r.Err()
	}
	if name = unsafe.String(unsafe.SliceData(raw), len(raw)); escaped {
		if name, err = Unquote(raw); err != nil {
			return "", err
		}
	}
	if k.any && name <= k.last {
		return "", fmt.Errorf("%w: its keys are not in order", ErrSyntax)
	}
	k.last, k.any = name, true
	return name, nil
}

// Text reads a string and returns what is between its quotes as it is written, and
// whether there are escapes in it, for [Unquote].
func (r *Reader) Text() (raw []byte, escaped bool) {
	if r.pos >= len(r.in) || r.in[r.pos] != '"' {
		r.fail()
		return nil, false
	}
	in, start := r.in, r.pos+1
	for i := special(in, start); i < len(in); i = special(in, i) {
		switch in[i] {
		case '"':
			r.pos = i + 1
			return in[start:i], escaped
		case '\\':
			escaped = true
			i += 2
		default: // a control character
			r.fail()
			return nil, false
		}
	}
	r.fail()
	return nil, false
}

// Number reads a number and returns its text.
func (r *Reader) Number() []byte {
	end := number(r.in, r.pos)
	if end < 0 {
		r.fail()
		return nil
	}
	text := r.in[r.pos:end]
	r.pos = end
	return text
}

// Literal reads true, false or null, as text has it.
func (r *Reader) Literal(text string) {
	if end := r.pos + len(text); end > len(r.in) || string(r.in[r.pos:end]) != text {
		r.fail()
		return
	}
	r.pos += len(text)
}

// Value reads any value, as Skip does, and returns it as it is written.
func (r *Reader) Value() []byte {
	start := r.pos
	r.Skip()
	if r.failed {
		return nil
	}
	return r.in[start:r.pos]
}

// Skip steps over any value.
func (r *Reader) Skip() { r.to(skip(r.in, r.pos)) }

// to steps to an index; there is nothing valid before where it is negative.
func (r *Reader) to(end int) {
	if end < 0 {
		r.fail()
		return
	}
	r.pos = end
}

// Get returns the value that a path of keys leads to, as it is written; nil where
// there is none.
func Get(b []byte, path ...string) []byte {
	r := NewReader(b)
	for _, key := range path {
		if !r.find(key) {
			return nil
		}
	}
	return r.Value()
}

// find steps to the value of a key of the object that is next, and reports whether
// there is one.
func (r *Reader) find(name string) bool {
	for more := r.Open('{'); more; more = r.Next('}') {
		raw, escaped := r.Key()
		if string(raw) == name && !escaped {
			return !r.failed
		}
		if escaped {
			if s, err := Unquote(raw); err == nil && s == name {
				return true
			}
		}
		r.Skip()
	}
	return false
}
