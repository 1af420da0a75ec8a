package aggregate

import "unsafe"

// unsafeBytes gives the decoder, which only reads, the bytes of an immutable
// string without a copy.
func unsafeBytes(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s))
}
