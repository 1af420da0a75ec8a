package mcp

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzShorten: a text has at most as many bytes in JSON as it may, whatever it is, and no character that nobody sees.
func FuzzShorten(f *testing.F) {
	for _, s := range []string{"", "abc", "<&>\"\\\n\t", "\x00\x1b[2J", "a\u202eb\u200b\ufeff", "\U000E0041\ufe0f", "\xff\xfe", "äöü…\u2028", strings.Repeat("<", 50)} {
		f.Add(s, 10)
		f.Add(s, 40)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 3 || limit > 1000 {
			t.Skip()
		}
		out, whole := shorten(s, limit)
		text, err := json.Marshal(out)
		if err != nil || !utf8.ValidString(out) || len(text)-2 > limit {
			t.Fatalf("%q to %d bytes: %q, %d bytes, %v", s, limit, out, len(text)-2, err)
		}
		if whole != (out == visible(s)) && !strings.HasSuffix(visible(s), "…") {
			t.Errorf("%q to %d bytes: %q, %v", s, limit, out, whole)
		}
		for _, r := range out {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r) {
				t.Errorf("%q has %U", out, r)
			}
		}
	})
}

// FuzzColumns: a path that is taken gives no more than a few times what the object has, in no time.
func FuzzColumns(f *testing.F) {
	for _, s := range []string{".spec", "spec.replicas", "{.a}", "@", ".items[*].x", ".c[?(@.type=='Ready')].status", "$..*", ".a['b','c']", "[0:2]", ".a[-1:]", ".*.*", `.a\.b`, ".x[?(@.a==1)]", "[*]['a']", ".a{.b}"} {
		f.Add(s)
	}
	object := []byte(`{"metadata":{"name":"x","managedFields":[1]},"a":{"b":[1,2,3],"c":"d"},"items":[{"x":1},{"x":[{"y":2}]}],"c":[{"type":"Ready","status":"True"}],"x":[{"a":1}]}`)
	f.Fuzz(func(t *testing.T, path string) {
		columns, err := newColumns([]string{path})
		if err != nil {
			return
		}
		text, err := columns[0].of(object)
		if err == nil && len(text) > 4*len(object) {
			t.Errorf("%q gives %d bytes", path, len(text))
		}
	})
}

// FuzzPosition: what was not given is refused, and what was given leads on.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "1.a", "-1.a", "1.", ".a", "x", "9999999999999999999.a", "1.a.b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := positionOf(s)
		if err != nil || s == "" {
			return
		}
		if again, err := positionOf(at.next(1, at.token)); err != nil || again.before != at.before+1 || again.token != at.token {
			t.Errorf("%q leads to %+v, %v", s, again, err)
		}
	})
}
