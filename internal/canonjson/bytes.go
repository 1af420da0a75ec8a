package canonjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// special returns the index at or after i of the first byte of b that ends a run of
// plain characters in a string: a quote, a backslash or a control character; len(b)
// or more if there is none.
func special(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// A borrow reaches only bytes above one that is flagged, so the lowest
		// flag is exact.
		if m := ((x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) &^ x & highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}

// skipString returns the index after the string that starts at i, -1 when it does
// not end.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		slashes := 0
		for b[i-1-slashes] == '\\' { // at most to the quote before
			slashes++
		}
		if i++; slashes%2 == 0 {
			return i
		}
	}
	return -1
}

// skip returns the index after the value that starts at i, -1 when there is none or
// it does not end.
func skip(b []byte, i int) int { return skipOut(b, i, 0) }

// skipOut is skip within so many objects and arrays, of which the outermost is left, too.
func skipOut(b []byte, i, depth int) int {
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i < 0 {
				return -1
			}
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return -1
			}
			depth--
			i++
		case ',', ':':
			if depth == 0 {
				return -1
			}
			i++
			continue
		default:
			i = skipScalar(b, i)
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// skipScalar returns the index after the number or literal that starts at i: that of
// the next byte of structure.
func skipScalar(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case ',', '}', ']', ':', '"', '{', '[':
			return i
		}
	}
	return i
}

// number returns the index after the number that starts at i, as RFC 8259, section
// 6, has it; -1 when there is none.
func number(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	start := i
	if i = digits(b, i); i == start || i > start+1 && b[start] == '0' {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = digits(b, start); i == start {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = digits(b, start); i == start {
			return -1
		}
	}
	return i
}

// digits returns the index after the digits that start at i.
func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}
