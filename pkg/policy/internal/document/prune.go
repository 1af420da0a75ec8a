package document

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync"

	"federator.dev/federator/pkg/policy/internal/mask"
)

// Prune appends the parts of a body that m reads, as canonical JSON, to dst. A nil
// mask appends nothing. Value of what it appends is Value of body under m.
func Prune(dst, body []byte, m *mask.Mask) ([]byte, error) {
	switch {
	case m == nil:
		return dst, nil
	case len(body) > MaxSize:
		return dst, fmt.Errorf("%w: %d bytes", ErrSize, len(body))
	case m.All:
		return append(dst, body...), nil
	}
	p := pruner{scanner: scanner{body: body}, out: dst}
	if err := p.value(m, 0); err != nil {
		return dst, err
	}
	if p.pos != len(body) {
		return dst, p.syntax()
	}
	return p.out, nil
}

// Equal reports whether m reads the same in two bodies, so that no policy under it
// can tell them apart. It builds no value.
func Equal(before, after []byte, m *mask.Mask) (bool, error) {
	if m == nil || bytes.Equal(before, after) {
		return true, nil
	}
	if m.All {
		return false, nil
	}
	b := buffers.Get().(*[]byte) //nolint:forcetypeassert // The pool holds nothing else.
	defer buffers.Put(b)
	old, err := Prune((*b)[:0], before, m)
	if err != nil {
		return false, err
	}
	both, err := Prune(old, after, m)
	if err != nil {
		return false, err
	}
	*b = both
	return bytes.Equal(both[:len(old)], both[len(old):]), nil
}

// Hash returns a hash of the parts of a body that m reads. Hashes compare only
// within one process.
func Hash(body []byte, m *mask.Mask) (uint64, error) {
	if m == nil {
		return 0, nil
	}
	if m.All {
		return maphash.Bytes(seed, body), nil
	}
	b := buffers.Get().(*[]byte) //nolint:forcetypeassert // The pool holds nothing else.
	defer buffers.Put(b)
	pruned, err := Prune((*b)[:0], body, m)
	if err != nil {
		return 0, err
	}
	*b = pruned
	return maphash.Bytes(seed, pruned), nil
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// pruner copies what a mask reads.
type pruner struct {
	scanner
	out []byte
}

func (p *pruner) value(m *mask.Mask, depth int) error {
	if p.pos >= len(p.body) {
		return p.syntax()
	}
	c := p.body[p.pos]
	if m.All || c != '{' && c != '[' {
		start := p.pos
		if err := p.skip(); err != nil {
			return err
		}
		p.out = append(p.out, p.body[start:p.pos]...)
		return nil
	}
	if depth++; depth > MaxDepth {
		return ErrDepth
	}
	if c == '{' {
		return p.object(m, depth)
	}
	return p.array(m, depth)
}

func (p *pruner) object(m *mask.Mask, depth int) error {
	p.out = append(p.out, '{')
	if m.Elem == nil && len(m.Fields) == 0 {
		p.out = append(p.out, '}')
		return p.skip()
	}
	kept := false
	for first := true; ; first = false {
		more, err := p.more('}', first)
		if err != nil {
			return err
		}
		if !more {
			p.out = append(p.out, '}')
			return nil
		}
		start := p.pos
		raw, escaped, err := p.string()
		if err != nil {
			return err
		}
		if p.pos >= len(p.body) || p.body[p.pos] != ':' {
			return p.syntax()
		}
		p.pos++
		child, err := below(m, raw, escaped)
		if err != nil {
			return err
		}
		if child == nil {
			if err := p.skip(); err != nil {
				return err
			}
			continue
		}
		if kept {
			p.out = append(p.out, ',')
		}
		kept = true
		p.out = append(p.out, p.body[start:p.pos]...)
		if err := p.value(child, depth); err != nil {
			return err
		}
	}
}

func (p *pruner) array(m *mask.Mask, depth int) error {
	p.out = append(p.out, '[')
	if m.Elem == nil {
		p.out = append(p.out, ']')
		return p.skip()
	}
	for first := true; ; first = false {
		more, err := p.more(']', first)
		if err != nil {
			return err
		}
		if !more {
			p.out = append(p.out, ']')
			return nil
		}
		if !first {
			p.out = append(p.out, ',')
		}
		if err := p.value(m.Elem, depth); err != nil {
			return err
		}
	}
}
