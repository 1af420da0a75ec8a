package canonjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"federator.dev/federator/internal/canonjson"
)

// FuzzUnquote holds that Unquote is encoding/json, in what it refuses, too.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{
		``, `a`, `\n`, `\"\\\/\b\f\n\r\t`, `\u00e4ö\u00E4`, `\ud83d\ude00`, `\ud800x`, `\udc00`, `x\u`, `\u12`, `\u12g4`, `\`, `a\`, `\q`, "\\n\x01", "\\n\xff", `\n"`, `0"\b0`, `\u0000`,
		`{\"apiVersion\":\"v1\"}\n`, `\uD83D\n`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := canonjson.Unquote(raw)
		if !strings.Contains(string(raw), `\`) {
			if got != string(raw) || err != nil {
				t.Fatalf("%q without a backslash is %q, %v", raw, got, err)
			}
			return
		}
		var want string
		wrong := json.Unmarshal([]byte(`"`+string(raw)+`"`), &want)
		if (err == nil) != (wrong == nil) || err == nil && got != want || err != nil && !errors.Is(err, canonjson.ErrSyntax) {
			t.Fatalf("%q is %q, %v, where encoding/json has %q, %v", raw, got, err, want, wrong)
		}
	})
}

// BenchmarkUnquote compares with encoding/json on what kubectl apply leaves in an annotation.
func BenchmarkUnquote(b *testing.B) {
	raw := []byte(strings.Repeat(`{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"settings\"}}\n`, 10))
	quoted := []byte(`"` + string(raw) + `"`)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if _, err := canonjson.Unquote(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			var s string
			if err := json.Unmarshal(quoted, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
