package canonjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"unicode/utf8"

	"federator.dev/federator/internal/canonjson"
)

var errDepth = errors.New("nested too deep")

// decode reads all of b with a Reader.
func decode(b []byte) (any, error) {
	r := canonjson.NewReader(b)
	v, err := value(&r, 0)
	return v, errors.Join(err, r.End())
}

func value(r *canonjson.Reader, depth int) (v any, err error) {
	if depth > 1000 {
		return nil, errDepth
	}
	switch r.Peek() {
	case '{':
		object := map[string]any{}
		for more := r.Open('{'); more && err == nil; more = r.Next('}') {
			var key string
			if key, err = canonjson.Unquote(first(r.Key())); err == nil {
				object[key], err = value(r, depth+1)
			}
		}
		return object, err
	case '[':
		list := []any{}
		for more := r.Open('['); more && err == nil; more = r.Next(']') {
			v, err = value(r, depth+1)
			list = append(list, v)
		}
		return list, err
	case '"':
		return canonjson.Unquote(first(r.Text()))
	case 't':
		r.Literal("true")
		return true, nil
	case 'f':
		r.Literal("false")
		return false, nil
	case 'n':
		r.Literal("null")
		return nil, nil
	}
	return json.Number(r.Number()), nil
}

func first(raw []byte, _ bool) []byte { return raw }

// standard decodes b as encoding/json does.
func standard(t *testing.T, b []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	return v
}

var seeds = []string{
	`{}`, `[]`, `""`, `0`, `-1.5e3`, `true`, `null`, `{"a":[1,{"b":"}]\"\\"}],"c":null}`, `[[],{},"",-1.5e3,true]`, `"\\\\\""`,
	`{"a":1,"a":{"a":2}}`, `{"\u0061":1,"a":2}`, `"\ud83d\ude00\ud800"`, `{"a\"b":[["x","12345678901234567890123456789012\""]]}`, `"äöü\n"`,
	`{"a"}`, `{"a":}`, `{"a":1`, `[1}`, `{"a":1]`, `[1,]`, `"a`, `"\"`, `]`, `,`, ``, `[01]`, `[tru]`, ` 1`, "\"\x01\"", "\"\xff\"", `{"a" :1}`, `[[[[`, `"\q"`,
}

// FuzzReader_EqualsEncodingJSON holds that compact JSON is read as encoding/json
// reads it, and that nothing else is read without an error.
func FuzzReader_EqualsEncodingJSON(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decode(raw)
		if errors.Is(err, errDepth) || !utf8.Valid(raw) {
			return
		}
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil {
			if err == nil {
				t.Fatalf("%q is %v, and not JSON", raw, got)
			}
			return
		}
		if isCompact := bytes.Equal(raw, compact.Bytes()); isCompact != (err == nil) {
			t.Fatalf("%q: %v", raw, err)
		}
		body := compact.Bytes()
		want := standard(t, body)
		if got, err = decode(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is %v, want %v: %v", body, got, want, err)
		}
		for _, behind := range []string{"", ",1", "}", "]", ":"} {
			r := canonjson.NewReader(append(bytes.Clone(body), behind...))
			if v := r.Value(); !bytes.Equal(v, body) || r.Pos() != len(body) || r.Err() != nil {
				t.Fatalf("%s%s starts with %s: %v", body, behind, v, r.Err())
			}
		}
		object, ok := want.(map[string]any)
		if !ok {
			return
		}
		for key := range object {
			if first := canonjson.Get(body, key); first == nil || !json.Valid(first) {
				t.Fatalf("%q of %s is %q", key, body, first)
			}
		}
	})
}

// FuzzReader_TakesAnything holds that a Reader returns parts of what it reads and no
// others, goes forward only and stands still once it failed, whatever is called.
func FuzzReader_TakesAnything(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), []byte("okvkvn"))
		f.Add([]byte(s), []byte("OtN1Nsx"))
		f.Add([]byte(s), []byte("OtLxL"))
	}
	f.Fuzz(func(t *testing.T, raw, calls []byte) {
		if !bytes.Contains(raw, canonjson.Get(raw, "a", "b")) {
			t.Fatal("a value from elsewhere")
		}
		r := canonjson.NewReader(raw[:len(raw):len(raw)])
		for _, call := range calls {
			before, failed := r.Pos(), r.Err()
			var part []byte
			moved := false
			switch call {
			case 'o':
				moved = r.Open('{')
			case 'O':
				moved = r.Open('[')
			case 'n':
				moved = r.Next('}')
			case 'N':
				moved = r.Next(']')
			case 'k':
				part, _ = r.Key()
			case 't':
				part, _ = r.Text()
			case '1':
				part = r.Number()
			case 'l':
				r.Literal("true")
			case 'L':
				r.Leave()
			case 'v':
				part = r.Value()
			default:
				r.Skip()
			}
			after := r.Pos()
			if after < before || after > len(raw) || after == before && r.Err() == nil || moved && after == before {
				t.Fatalf("%q: %c at %d leads to %d", raw, call, before, after)
			}
			if !bytes.Contains(raw[before:after], part) {
				t.Fatalf("%q: %c at %d returns %q", raw, call, before, part)
			}
			if failed != nil && (after != before || part != nil || r.Peek() != 0 || r.Err().Error() != failed.Error()) {
				t.Fatalf("%q: %c goes on after %v", raw, call, failed)
			}
		}
		if r.End(); r.Pos() < len(raw) && r.Err() == nil {
			t.Fatalf("%q ends at %d", raw, r.Pos())
		}
	})
}
