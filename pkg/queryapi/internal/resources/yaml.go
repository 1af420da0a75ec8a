package resources

import (
	"fmt"
	"unicode/utf8"
)

// escapeForYAML escapes the characters that JSON strings may hold and YAML streams
// may not, such as DEL: without them JSON is YAML. Text without any is returned as
// it is.
func escapeForYAML(text []byte) []byte {
	var out []byte
	copied := 0
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		if !allowedInYAML(r) {
			out = append(out, text[copied:i]...)
			out = fmt.Appendf(out, `\u%04x`, r)
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return text
	}
	return append(out, text[copied:]...)
}

// allowedInYAML reports whether a YAML stream may hold a character, as YAML 1.2 has it in
// section 5.1; all that it may not are of four hexadecimal digits.
func allowedInYAML(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', r == 0x85:
		return true
	case r < ' ', r >= 0x7f && r < 0xa0, r == 0xfeff, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}
