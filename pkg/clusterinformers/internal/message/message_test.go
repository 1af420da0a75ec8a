package message

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClipBoundsAndCleans(t *testing.T) {
	if got := Clip("a\x1b[31m\nb\x7f"); got != "a [31m b " {
		t.Errorf("%q", got)
	}
	long := Clip(strings.Repeat("é\xff", MaxRunes))
	if n := utf8.RuneCountInString(long); n != MaxRunes || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("%d runes, valid %t", n, utf8.ValidString(long))
	}
}
