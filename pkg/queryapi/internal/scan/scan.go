// Package scan walks canonical JSON without decoding it: the bodies of the index,
// which have no white space. It judges no more than it needs to find its way.
package scan

import "bytes"

// String returns the index after the string that starts at i, -1 when there is none
// or it does not end.
func String(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for j := i - 1; b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
	return -1
}

// Value returns the index after the value that starts at i, -1 when there is none or
// it does not end. A scalar ends with b, too.
func Value(b []byte, i int) int {
	start, depth := i, 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = String(b, i); i < 0 || depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return after(start, i)
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return after(start, i)
			}
		}
		i++
	}
	if depth > 0 {
		return -1
	}
	return after(start, i)
}

// after returns the end of a scalar, which is not nothing.
func after(start, end int) int {
	if end <= start {
		return -1
	}
	return end
}

// Key returns the key, in its quotes, of the member of an object that starts at i,
// and where its value starts: -1 when there is none.
func Key(b []byte, i int) (key []byte, value int) {
	end := String(b, i)
	if end < 0 || end >= len(b) || b[end] != ':' {
		return nil, -1
	}
	return b[i:end], end + 1
}

// Next returns where the next member or element starts after one that ended at i, or
// what comes after the object or list; -1 when neither follows. It takes an end of
// -1.
func Next(b []byte, i int) (next int, more bool) {
	if i >= 0 && i < len(b) {
		switch b[i] {
		case ',':
			return i + 1, true
		case '}', ']':
			return i + 1, false
		}
	}
	return -1, false
}

// Open returns where the first member or element of the object or list at i starts,
// or what comes after an empty one; -1 when none starts with c.
func Open(b []byte, i int, c byte) (first int, more bool) {
	if i+1 >= len(b) || b[i] != c {
		return -1, false
	}
	if b[i+1] == c+2 { // } and ] are two after { and [
		return i + 2, false
	}
	return i + 1, true
}
