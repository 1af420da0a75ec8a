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

// escapes are what letters after a backslash stand for, those that are not rare.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape returns what raw stands for; nil where it has what is rare: characters by their
// number, or what is not JSON or not UTF-8.
func unescape(raw []byte) []byte {
	if !utf8.Valid(raw) {
		return nil
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		plain := min(special(raw, 0), len(raw))
		out, raw = append(out, raw[:plain]...), raw[plain:]
		if len(raw) == 0 {
			break
		}
		if raw[0] != '\\' || len(raw) == 1 || escapes[raw[1]] == 0 {
			return nil
		}
		out, raw = append(out, escapes[raw[1]]), raw[2:]
	}
	return out
}
