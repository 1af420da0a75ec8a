package message

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip_BoundsAndCleans(t *testing.T) {
	if got := Clip("a\x1b[31m\nb\x7f"); got != "a [31m b " {
		t.Errorf("%q", got)
	}
	long := Clip(strings.Repeat("é\xff", MaxBytes))
	if n := len(long); n > MaxBytes || n < MaxBytes-utf8.UTFMax || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("%d bytes, valid %t", n, utf8.ValidString(long))
	}
}
