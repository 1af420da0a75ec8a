package canonjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
	"unsafe"
)

// Unquote returns the string that is written as raw between its quotes, as encoding/json
// reads it.
func Unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), nil
	}
	if out := unescape(raw); out != nil {
		return unsafe.String(unsafe.SliceData(out), len(out)), nil
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "", fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return s, nil
}

// escapes are what letters after a backslash stand for; u is not among them.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape returns what raw stands for; nil where it has what is rare: surrogates, or what is not
// JSON or not UTF-8.
func unescape(raw []byte) []byte {
	if !utf8.Valid(raw) {
		return nil
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		plain := min(special(raw, 0), len(raw))
		out, raw = append(out, raw[:plain]...), raw[plain:]
		switch {
		case len(raw) == 0:
			return out
		case len(raw) == 1 || raw[0] != '\\':
			return nil
		case raw[1] != 'u':
			c := escapes[raw[1]]
			if c == 0 {
				return nil
			}
			out, raw = append(out, c), raw[2:]
			continue
		}
		r := hex4(raw[2:])
		if r < 0 || r >= 0xd800 && r < 0xe000 {
			return nil
		}
		out, raw = utf8.AppendRune(out, r), raw[6:]
	}
	return out
}

// hex4 is the number of which b begins with the four hexadecimal digits, -1 where it does not.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var n rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		n = n<<4 | rune(c)
	}
	return n
}
