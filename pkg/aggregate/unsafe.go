package aggregate

import "unsafe"

// unsafeBytes returns the bytes of an immutable string without a copy, for the decoder,
// which only reads.
func unsafeBytes(s string) []byte {
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// unsafeString returns bytes as a string that is valid until they change, for lookups.
func unsafeString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
