package tracing

import (
	"strings"
	"testing"
)

// FuzzParseHeaders checks that what is parsed can be sent, and is what the file says.
func FuzzParseHeaders(f *testing.F) {
	for _, seed := range []string{"", "authorization: Bearer x", "a:b\nc : d\n", "a", ": b", "a:\x00", "A: 1\na: 2", "grpc-timeout: 1s", strings.Repeat("a", maxHeaders) + ": b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseHeaders(text)
		if err != nil {
			return
		}
		for name, value := range got {
			if name != strings.ToLower(name) || !isPrintable(value) || !strings.Contains(strings.ToLower(string(text)), name) || !strings.Contains(string(text), value) {
				t.Errorf("%q gives %q: %q", text, name, value)
			}
		}
	})
}
