package selection

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
)

// Bounds of one field selector. A matcher keeps its terms in one machine word.
const (
	maxTerms = 60
	maxSteps = 32
)

// requirement is one term of a field selector, as written.
type requirement struct {
	path   []string
	value  string
	negate bool
}

// syntaxError is an invalid field selector or path.
type syntaxError struct {
	at      int // byte
	problem string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("at byte %d: %s", e.at, e.problem) }

// fieldReader parses a field selector from left to right.
type fieldReader struct {
	s  string
	at int
}

func (r *fieldReader) fail(format string, args ...any) error {
	return &syntaxError{r.at, fmt.Sprintf(format, args...)}
}

// EscapeValue escapes a value for use in a field selector.
func EscapeValue(value string) string { return fields.EscapeValue(value) }

// parseFields parses a field selector.
func parseFields(s string) ([]requirement, error) {
	r := &fieldReader{s: s}
	if !utf8.ValidString(s) {
		return nil, r.fail("it is not valid UTF-8")
	}
	var out []requirement
	for r.at < len(s) {
		if s[r.at] == ',' { // as fields.ParseSelector, which skips empty terms
			r.at++
			continue
		}
		if len(out) == maxTerms {
			return nil, r.fail("there are more than %d terms", maxTerms)
		}
		term, err := r.term()
		if err != nil {
			return nil, err
		}
		out = append(out, term)
	}
	return out, nil
}

func (r *fieldReader) term() (q requirement, err error) {
	if q.path, err = r.path(); err != nil {
		return q, err
	}
	switch rest := r.s[r.at:]; {
	case strings.HasPrefix(rest, "!="):
		q.negate = true
		r.at += 2
	case strings.HasPrefix(rest, "=="):
		r.at += 2
	case strings.HasPrefix(rest, "="):
		r.at++
	default:
		return q, r.fail("an operator is expected: =, == or !=")
	}
	q.value, err = r.value()
	return q, err
}

// parsePath parses the path of a field: keys separated by dots, or in brackets and quotes.
func parsePath(s string) ([]string, error) {
	r := &fieldReader{s: s}
	if !utf8.ValidString(s) {
		return nil, r.fail("it is not valid UTF-8")
	}
	path, err := r.path()
	if err == nil && r.at < len(s) {
		err = r.fail("unexpected %q in the path", s[r.at])
	}
	return path, err
}

// path parses the longest path at the present position.
func (r *fieldReader) path() ([]string, error) {
	var path []string
	for {
		var step string
		var err error
		if r.at < len(r.s) && r.s[r.at] == '[' {
			step, err = r.bracket()
		} else {
			step, err = r.key()
		}
		if err != nil {
			return nil, err
		}
		if path = append(path, step); len(path) > maxSteps {
			return nil, r.fail("the path has more than %d keys", maxSteps)
		}
		switch {
		case r.at < len(r.s) && r.s[r.at] == '.':
			r.at++
		case r.at < len(r.s) && r.s[r.at] == '[':
		default:
			return path, nil
		}
	}
}

// key parses a key without quotes.
func (r *fieldReader) key() (string, error) {
	from := r.at
	for ; r.at < len(r.s); r.at++ {
		c := r.s[r.at]
		if c == '.' || c == '[' || c == '=' || c == ',' || c == '!' && strings.HasPrefix(r.s[r.at:], "!=") {
			break
		}
		if c <= ' ' || c == 0x7f || strings.IndexByte(`\'"]()<>!`, c) >= 0 {
			return "", r.fail("%q cannot be part of a key that is not quoted", c)
		}
	}
	if from == r.at {
		return "", r.fail("a key is expected")
	}
	return r.s[from:r.at], nil
}

// bracket parses ['…'] or ["…"], in which \ escapes the quote and itself.
func (r *fieldReader) bracket() (string, error) {
	r.at++
	if r.at == len(r.s) || r.s[r.at] != '\'' && r.s[r.at] != '"' {
		return "", r.fail("a quoted key is expected in brackets")
	}
	quote := r.s[r.at]
	var b strings.Builder
	for r.at++; r.at < len(r.s) && r.s[r.at] != quote; r.at++ {
		if r.s[r.at] == '\\' {
			r.at++
			if r.at == len(r.s) || r.s[r.at] != quote && r.s[r.at] != '\\' {
				return "", r.fail(`in a quoted key \ escapes only the quote and itself`)
			}
		}
		b.WriteByte(r.s[r.at])
	}
	if r.at+1 >= len(r.s) || r.s[r.at+1] != ']' {
		return "", r.fail("a bracket is not closed")
	}
	r.at += 2
	return b.String(), nil
}

// value parses up to a comma. Escapes are those of fields.UnescapeValue.
func (r *fieldReader) value() (string, error) {
	var b strings.Builder
	for ; r.at < len(r.s) && r.s[r.at] != ','; r.at++ {
		switch c := r.s[r.at]; c {
		case '=':
			return "", r.fail(`= in a value is written \=`)
		case '\\':
			r.at++
			if r.at == len(r.s) || strings.IndexByte(`\,=`, r.s[r.at]) < 0 {
				return "", r.fail(`in a value \ escapes only \ , =`)
			}
		}
		b.WriteByte(r.s[r.at])
	}
	return b.String(), nil
}
