package scan_test

import (
	"encoding/json"
	"testing"

	"federator.dev/federator/pkg/queryapi/internal/scan"
)

var samples = []string{
	`{}`, `[]`, `""`, `{"a":[1,{"b":"}]\"\\"}],"c":null}`, `[[],{},"",-1.5e3,true]`, `"\\\\\""`,
	`{"a"}`, `{"a":}`, `{"a":1`, `"a`, `"\"`, `]`, `,`, ``,
}

// FuzzValue holds that the end of a JSON value is found, whatever follows it, and
// that what is no JSON is left alive.
func FuzzValue(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if end := scan.Value(raw, 0); end > len(raw) {
			t.Fatalf("%q ends at %d", raw, end)
		}
		members(raw)
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return
		}
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []string{"", ",1", "}", "]"} {
			if end := scan.Value(append([]byte(nil), string(body)+after...), 0); end != len(body) {
				t.Fatalf("%s%s ends at %d", body, after, end)
			}
		}
		if o, ok := v.(map[string]any); ok {
			if n, end := members(body); n != len(o) || end != len(body) {
				t.Fatalf("%s has %d members and ends at %d", body, n, end)
			}
		}
	})
}

// members counts the members of an object.
func members(b []byte) (n, end int) {
	i, more := scan.Open(b, 0, '{')
	for more {
		_, at := scan.Key(b, i)
		if at < 0 {
			return n, -1
		}
		n++
		i, more = scan.Next(b, scan.Value(b, at))
	}
	return n, i
}
