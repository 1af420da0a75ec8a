package decode

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// plain returns the index at or after i of the first byte of b that needs an escape in a
// JSON string or is not ASCII; len(b) if there is none.
func plain(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// A borrow reaches only bytes above one that is flagged, so the
		// lowest flag is exact.
		m := (x | (x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) & highs
		if m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}

// appendString appends s as a canonical JSON string, or reports false when s
// is not valid UTF-8.
func appendString(dst, s []byte) ([]byte, bool) {
	dst = append(dst, '"')
	start := 0
	for i := plain(s, 0); i < len(s); i = plain(s, i) {
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendRune(dst, rune(c))
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && size == 1 {
			return dst, false
		}
		if r == '\u2028' || r == '\u2029' {
			dst = append(dst, s[start:i]...)
			dst = appendRune(dst, r)
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"'), true
}

const hexDigits = "0123456789abcdef"

// appendRune appends one character of a string as encoding/json escapes it
// without HTML escapes.
func appendRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\u2028':
		return append(dst, `\u2028`...)
	case '\u2029':
		return append(dst, `\u2029`...)
	}
	if r < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&0xf])
	}
	return utf8.AppendRune(dst, r)
}

// hex4 returns the value of the four hexadecimal digits at the start of b, or -1.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unicodeEscape decodes the \u escape at the start of b and returns its length: 12 for a
// pair of surrogates, 6 otherwise, 0 if there is none. A lone surrogate is U+FFFD.
func unicodeEscape(b []byte) (rune, int) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, 0
	}
	r := hex4(b[2:])
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if b = b[6:]; len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
		if pair := utf16.DecodeRune(r, hex4(b[2:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

// appendNumber appends a JSON number (grammatically valid) as apimachinery's decoder and
// encoding/json format it: an int64 if it is one, else a float64. It reports false for one
// beyond float64.
func appendNumber(dst, num []byte, integer bool) ([]byte, bool) {
	if integer {
		if i, err := strconv.ParseInt(string(num), 10, 64); err == nil {
			return strconv.AppendInt(dst, i, 10), true
		}
	}
	f, err := strconv.ParseFloat(string(num), 64)
	if err != nil {
		return dst, false
	}
	return appendFloat(dst, f), true
}

// appendFloat formats as encoding/json does.
func appendFloat(dst []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// scanNumber returns the end of the number at b[i] and whether it has neither
// fraction nor exponent; end is i if there is no valid number.
func scanNumber(b []byte, i int) (end int, integer bool) {
	start := i
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return start, false
	case b[i] == '0':
		i++
	case '1' <= b[i] && b[i] <= '9':
		i = digits(b, i)
	default:
		return start, false
	}
	integer = true
	if i < len(b) && b[i] == '.' {
		integer = false
		from := i + 1
		if i = digits(b, from); i == from {
			return start, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		integer = false
		from := i + 1
		if from < len(b) && (b[from] == '+' || b[from] == '-') {
			from++
		}
		if i = digits(b, from); i == from {
			return start, false
		}
	}
	return i, integer
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// decodeRune returns the character at the start of b; its size is 0 if it is not valid
// UTF-8.
func decodeRune(b []byte) (rune, int) {
	r, size := utf8.DecodeRune(b)
	if r == utf8.RuneError && size == 1 {
		return r, 0
	}
	return r, size
}
