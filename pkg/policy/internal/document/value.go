package document

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// Bounds on a body. Nothing that an API server stores comes near them.
const (
	MaxDepth = 256     // nested objects and arrays
	MaxSize  = 8 << 20 // bytes
)

// Errors that callers branch on.
var (
	ErrSyntax = canonjson.ErrSyntax
	ErrDepth  = errors.New("nested too deep")
	ErrSize   = errors.New("too large")
)

// Value returns the parts of a body that m reads, nil for a nil mask. The value shares
// no memory with body, but terms with other values: it must not be changed.
func Value(body []byte, m *mask.Mask) (ast.Value, error) {
	if m == nil {
		return nil, nil // A mask that reads nothing has no value.
	}
	if len(body) > MaxSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrSize, len(body))
	}
	d := decoders.Get().(*decoder) // The pool holds nothing else.
	defer d.release()
	d.Reader, d.size = canonjson.NewReader(body), len(body)
	t, err := d.value(m, 0)
	if err != nil {
		return nil, err
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return t.Value, nil
}

const (
	cacheSize = 4096 // a power of two
	cacheText = 48   // longest string that is cached, in bytes
	slabMax   = 64   // terms in one allocation
)

// seed is that of all decoders, so that a string has the same slot in every cache.
var seed = maphash.MakeSeed()

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// decoder converts one body at a time to terms.
type decoder struct {
	canonjson.Reader
	size  int                // of the body
	slab  []ast.Term         // unused terms
	next  int                // size of the next slab
	text  strings.Builder    // the bytes of strings, many to an allocation
	pairs [][2]*ast.Term     // a stack: the fields of the objects being read
	elems []*ast.Term        // a stack: the elements of the arrays being read
	cache [cacheSize]*cached // short strings, by the low bits of their hash
}

type cached struct {
	text string
	term *ast.Term
}

// release returns d to the pool, without references to its last value.
func (d *decoder) release() {
	d.Reader = canonjson.Reader{}
	d.slab, d.next = nil, 0
	d.text = strings.Builder{}
	clear(d.pairs[:cap(d.pairs)])
	clear(d.elems[:cap(d.elems)])
	if cap(d.pairs) > 512 {
		d.pairs = nil
	}
	if cap(d.elems) > 512 {
		d.elems = nil
	}
	d.pairs, d.elems = d.pairs[:0], d.elems[:0]
	decoders.Put(d)
}

// value reads the value that is next. m is not nil.
func (d *decoder) value(m *mask.Mask, depth int) (*ast.Term, error) {
	switch d.Peek() {
	case '{':
		return d.object(m, depth+1)
	case '[':
		return d.array(m, depth+1)
	case '"':
		raw, escaped := d.Text()
		if raw == nil {
			return nil, d.Err()
		}
		return d.stringTerm(raw, escaped)
	case 't':
		d.Literal("true")
		return ast.InternedBooleanTrue, d.Err()
	case 'f':
		d.Literal("false")
		return ast.InternedBooleanFalse, d.Err()
	case 'n':
		d.Literal("null")
		return ast.InternedNullTerm, d.Err()
	default:
		return d.number()
	}
}

func (d *decoder) object(m *mask.Mask, depth int) (*ast.Term, error) {
	if depth > MaxDepth {
		return nil, ErrDepth
	}
	if !m.All && m.Elem == nil && len(m.Fields) == 0 {
		d.Skip()
		return ast.InternedEmptyObject, d.Err()
	}
	base := len(d.pairs)
	var last string
	for more := d.Open('{'); more; more = d.Next('}') {
		key, child, err := d.field(m)
		if err != nil {
			return nil, err
		}
		if child == nil {
			d.Skip()
			continue
		}
		name := string(key.Value.(ast.String)) // Keys are strings.
		if len(d.pairs) > base && name <= last {
			return nil, fmt.Errorf("%w: its keys are not in order", ErrSyntax)
		}
		last = name
		v, err := d.value(child, depth)
		if err != nil {
			return nil, err
		}
		d.pairs = append(d.pairs, [2]*ast.Term{key, v})
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	t := ast.InternedEmptyObject
	if len(d.pairs) > base {
		t = d.term(ast.NewObject(d.pairs[base:]...))
	}
	d.pairs = d.pairs[:base]
	return t, nil
}

// field reads a key. It is nil when m does not read its value.
func (d *decoder) field(m *mask.Mask) (key *ast.Term, child *mask.Mask, err error) {
	raw, escaped := d.Key()
	if raw == nil {
		return nil, nil, d.Err()
	}
	child, err = Below(m, raw, escaped)
	if child == nil || err != nil {
		return nil, nil, err
	}
	key, err = d.stringTerm(raw, escaped)
	return key, child, err
}

// Below returns what m reads under a key as it is written.
func Below(m *mask.Mask, raw []byte, escaped bool) (*mask.Mask, error) {
	if m.All {
		return m, nil
	}
	if escaped {
		s, err := canonjson.Unquote(raw)
		if err != nil {
			return nil, err
		}
		return m.Child(s), nil
	}
	if c, ok := m.Fields[string(raw)]; ok {
		return c, nil
	}
	return m.Elem, nil
}

func (d *decoder) array(m *mask.Mask, depth int) (*ast.Term, error) {
	if depth > MaxDepth {
		return nil, ErrDepth
	}
	child := m.Element()
	if child == nil {
		d.Skip()
		return ast.InternedEmptyArray, d.Err()
	}
	base := len(d.elems)
	for more := d.Open('['); more; more = d.Next(']') {
		v, err := d.value(child, depth)
		if err != nil {
			return nil, err
		}
		d.elems = append(d.elems, v)
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	t := ast.InternedEmptyArray
	if len(d.elems) > base {
		t = d.term(ast.NewArray(slices.Clone(d.elems[base:])...))
	}
	d.elems = d.elems[:base]
	return t, nil
}

// stringTerm returns the term of a string as it is written, without its quotes.
func (d *decoder) stringTerm(raw []byte, escaped bool) (*ast.Term, error) {
	if escaped {
		s, err := canonjson.Unquote(raw)
		if err != nil {
			return nil, err
		}
		return d.term(ast.String(s)), nil
	}
	if len(raw) > cacheText {
		return d.term(ast.String(d.keep(raw))), nil
	}
	slot := &d.cache[maphash.Bytes(seed, raw)&(cacheSize-1)]
	if c := *slot; c != nil && c.text == string(raw) {
		return c.term, nil
	}
	// The cache outlives this value: the string gets its own memory.
	s := string(raw)
	t := &ast.Term{Value: ast.String(s)}
	*slot = &cached{text: s, term: t}
	return t, nil
}

// keep copies bytes next to those of the value's other strings.
func (d *decoder) keep(raw []byte) string {
	if d.text.Cap()-d.text.Len() < len(raw) {
		d.text = strings.Builder{}
		d.text.Grow(max(len(raw), min(1024, d.size-d.Pos()+len(raw))))
	}
	start := d.text.Len()
	d.text.Write(raw)
	return d.text.String()[start:]
}

func (d *decoder) number() (*ast.Term, error) {
	raw := d.Number()
	if raw == nil {
		return nil, d.Err()
	}
	if t := ast.InternedIntNumberTermFromString(string(raw)); t != nil {
		return t, nil
	}
	n, err := ast.NumberChecked(string(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return d.term(n), nil
}

// term returns a term from the slab, which grows with the value.
func (d *decoder) term(v ast.Value) *ast.Term {
	if len(d.slab) == 0 {
		d.next = min(max(2*d.next, 8), slabMax)
		d.slab = make([]ast.Term, d.next)
	}
	t := &d.slab[0]
	d.slab = d.slab[1:]
	t.Value = v
	return t
}
