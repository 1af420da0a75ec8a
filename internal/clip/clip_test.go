package clip_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"federator.dev/federator/internal/clip"
)

func ExampleText() {
	fmt.Println(clip.Text("connection refused", 13))
	// Output: connection…
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "…"},
		{"abcdef", 5, "ab…"},
		{"äääää", 6, "ä…"},
		{"a\xffb", 9, "a\ufffdb"},
		{strings.Repeat("a\xff", 9), 10, "a\ufffda…"},
	} {
		got := clip.Text(c.in, c.limit)
		if got != c.want || len(got) > c.limit || !utf8.ValidString(got) {
			t.Errorf("%q to %d bytes is %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	if got, want := clip.Line("a\x1b[1m\r\nb\x7f\u0085c", 9), "a [1m …"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
