package document

import (
	"bytes"
	"fmt"
)

// scanner steps over canonical JSON.
type scanner struct {
	body []byte
	pos  int
}

func (s *scanner) syntax() error {
	return fmt.Errorf("%w: at byte %d of %d", ErrSyntax, s.pos, len(s.body))
}

// more steps into an object or array, or to its next member, and reports whether
// there is one; it steps over the end where there is none.
func (s *scanner) more(end byte, first bool) (bool, error) {
	if first {
		s.pos++ // the opening bracket
	}
	if s.pos >= len(s.body) {
		return false, s.syntax()
	}
	switch c := s.body[s.pos]; {
	case c == end:
		s.pos++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		s.pos++
		return true, nil
	}
	return false, s.syntax()
}

// string steps over a string and returns what is between its quotes.
func (s *scanner) string() (raw []byte, escaped bool, err error) {
	if s.pos >= len(s.body) || s.body[s.pos] != '"' {
		return nil, false, s.syntax()
	}
	start := s.pos + 1
	for i := start; i < len(s.body); i++ {
		switch c := s.body[i]; {
		case c == '"':
			s.pos = i + 1
			return s.body[start:i], escaped, nil
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			s.pos = i
			return nil, false, s.syntax()
		}
	}
	return nil, false, s.syntax()
}

func (s *scanner) literal(text string) error {
	if !bytes.HasPrefix(s.body[s.pos:], []byte(text)) {
		return s.syntax()
	}
	s.pos += len(text)
	return nil
}

// skipNumber steps over a number, RFC 8259 section 6.
func (s *scanner) skipNumber() error {
	if s.pos < len(s.body) && s.body[s.pos] == '-' {
		s.pos++
	}
	whole := s.digits()
	if whole == 0 || whole > 1 && s.body[s.pos-whole] == '0' {
		return s.syntax()
	}
	if s.pos < len(s.body) && s.body[s.pos] == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.syntax()
		}
	}
	if s.pos < len(s.body) && s.body[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.body) && (s.body[s.pos] == '+' || s.body[s.pos] == '-') {
			s.pos++
		}
		if s.digits() == 0 {
			return s.syntax()
		}
	}
	return nil
}

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.body) && s.body[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos - start
}

// skip steps over any value without looking at more than brackets and strings.
func (s *scanner) skip() error {
	depth := 0
	for s.pos < len(s.body) {
		switch c := s.body[s.pos]; c {
		case '"':
			if err := s.skipString(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.pos++
			continue
		case '}', ']':
			if depth == 0 {
				return s.syntax()
			}
			depth--
			s.pos++
		case ',', ':':
			if depth == 0 {
				return s.syntax()
			}
			s.pos++
			continue
		default:
			s.skipScalar()
		}
		if depth == 0 {
			return nil
		}
	}
	return s.syntax()
}

// skipString steps over a string by its closing quote.
func (s *scanner) skipString() error {
	for from := s.pos + 1; ; {
		i := bytes.IndexByte(s.body[from:], '"')
		if i < 0 {
			return s.syntax()
		}
		end := from + i
		slashes := 0
		for end-1-slashes > s.pos && s.body[end-1-slashes] == '\\' {
			slashes++
		}
		from = end + 1
		if slashes%2 == 0 {
			s.pos = from
			return nil
		}
	}
}

// skipScalar steps over a number or literal: to the next structural byte.
func (s *scanner) skipScalar() {
	for s.pos++; s.pos < len(s.body); s.pos++ {
		switch s.body[s.pos] {
		case ',', '}', ']', ':', '"', '{', '[':
			return
		}
	}
}
