package document

import (
	"fmt"

	"federator.dev/federator/internal/canonjson"
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
	p := pruner{Reader: canonjson.NewReader(body), out: dst}
	if err := p.value(m, 0); err != nil {
		return dst, err
	}
	if err := p.End(); err != nil {
		return dst, err
	}
	return p.out, nil
}

// pruner copies what a mask reads. Its methods leave malformed JSON to the Reader's
// own error.
type pruner struct {
	canonjson.Reader
	out []byte
}

func (p *pruner) value(m *mask.Mask, depth int) error {
	c := p.Peek()
	if m.All || c != '{' && c != '[' {
		p.out = append(p.out, p.Value()...)
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
		p.Skip()
		return nil
	}
	kept := false
	for more := p.Open('{'); more; more = p.Next('}') {
		raw, escaped := p.Key()
		child, err := Below(m, raw, escaped)
		if err != nil {
			return err
		}
		if child == nil {
			p.Skip()
			continue
		}
		if kept {
			p.out = append(p.out, ',')
		}
		kept = true
		p.out = append(append(append(p.out, '"'), raw...), '"', ':')
		if err := p.value(child, depth); err != nil {
			return err
		}
	}
	p.out = append(p.out, '}')
	return nil
}

func (p *pruner) array(m *mask.Mask, depth int) error {
	p.out = append(p.out, '[')
	if m.Elem == nil {
		p.out = append(p.out, ']')
		p.Skip()
		return nil
	}
	for more := p.Open('['); more; {
		if err := p.value(m.Elem, depth); err != nil {
			return err
		}
		if more = p.Next(']'); more {
			p.out = append(p.out, ',')
		}
	}
	p.out = append(p.out, ']')
	return nil
}
