package external_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy/internal/external"
)

func TestDecode_SaysWhere(t *testing.T) {
	schema, err := external.ParseSchema([]byte(`{"type":"object","required":["owners"],"properties":{"owners":{"type":"object","additionalProperties":{"type":"string"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		yaml bool
		want string // of the document, or of the error
	}{
		{`{"owners": {"b": "x", "a": "é<&>\u2028"}}`, false, "{\"owners\":{\"a\":\"é<&>\\u2028\",\"b\":\"x\"}}"},
		{"# who\nowners:\n  web: ann\n", true, `{"owners":{"web":"ann"}}`},
		{`{"owners": {"web": "ann"}}`, true, `{"owners":{"web":"ann"}}`},
		{"{\"owners\": {\n  \"web\": 1,\n}}", false, "line 3, column 1: invalid character '}' looking for beginning of object key string"},
		{"{\"owners\": {\n  \"web\": 1,\n  \"web\": 2}}", false, `line 3, column 8: key "web" is there twice`},
		{"owners:\n  web: ann\n  web: ben\n", true, `line 3, column 3:`},
		{`{"owners": `, false, "unexpected end of JSON input"},
		{`{"owners": {}} {}`, false, "invalid character '{' after top-level value"},
		{"", false, "it is empty"},
		{"# nothing\n", true, "it is empty"},
		{`{"owners": {"web": 1}}`, false, "it does not match its schema: owners.web: Invalid type. Expected: string, given: integer"},
		{`[]`, false, "it does not match its schema: "},
		{"{\"owners\": {\"\xff\": \"x\"}}", false, "line 1, column 14: invalid UTF-8"},
		{strings.Repeat("[", 70) + strings.Repeat("]", 70), false, "it is nested more than 64 deep"},
		{`{"owners": {"web": "` + strings.Repeat("x", 200) + `"}}`, false, "it has more than 200 bytes"},
		{`{"owners": {"web": NaN}}`, false, "line 1, column 20: invalid character 'N' looking for beginning of value"},
	} {
		got, err := external.Decode([]byte(c.text), c.yaml, 200, schema)
		text := string(got)
		if err != nil {
			text = err.Error()
			if e := (*external.Error)(nil); !errors.As(err, &e) {
				t.Errorf("%.40q: %T", c.text, err)
			}
		}
		if !strings.Contains(text, c.want) || err == nil && text != c.want {
			t.Errorf("%.40q: %s, want %s", c.text, text, c.want)
		}
	}
}

// TestDecode_NumbersAreBounded: numbers that are no float64 end the validator, or keep it busy for minutes.
func TestDecode_NumbersAreBounded(t *testing.T) {
	schema, err := external.ParseSchema([]byte(`{"uniqueItems":true,"items":{"type":"number","multipleOf":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"[1e400]", "[-1e309]", "[1e-16000]", "[1" + strings.Repeat("0", 400) + "]", "[" + strings.TrimSuffix(strings.Repeat("1e16000,", 10_000), ",") + "]"} {
		for _, yaml := range []bool{false, true} {
			if _, err := external.Decode([]byte(text), yaml, 0, schema); err == nil || !strings.Contains(err.Error(), "number") {
				t.Errorf("%.20s: error %v", text, err)
			}
		}
	}
	for _, text := range []string{"[9007199254740993]", "[3e300]", "[0]", "[30000000000000000000000000003]"} {
		if got, err := external.Decode([]byte(text), false, 0, schema); err != nil || string(got) != text {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestParseSchema_Refuses(t *testing.T) {
	for _, text := range []string{`{`, `[]`, `{"$ref":"http://x/y"}`, `{"type":"nothing"}`, `{"properties":{"a":{"$ref":"#/b"}}}`} {
		if _, err := external.ParseSchema([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	if s, err := external.ParseSchema(nil); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

// FuzzDecode holds what is taken to encoding/json, and to what documents are made of.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"a":[1,2.5e3,"x",null,true]}`, "a: [1, x]\n", `{"a":1,"a":2}`, `"\ud800"`, `1e999999`, "a: &x 1\nb: *x\n", `{"":{"":[]}}`, "\xff", "- 0x1f\n- 1_000\n"} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	schema, err := external.ParseSchema([]byte(`{"maxProperties":4}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte, yaml bool) {
		out, err := external.Decode(text, yaml, 1<<16, schema)
		if err != nil {
			if e := (*external.Error)(nil); !errors.As(err, &e) || e.Line < 0 || e.Col < 0 || len(e.Error()) > 4096 {
				t.Fatalf("error %q", err)
			}
			return
		}
		again, err := external.Decode(out, false, 1<<16, schema)
		if err != nil || !bytes.Equal(out, again) {
			t.Fatalf("%q is %q again, %v", out, again, err)
		}
		if !yaml {
			var a, b any
			for i, into := range []*any{&a, &b} {
				d := json.NewDecoder(bytes.NewReader([][]byte{text, out}[i]))
				d.UseNumber()
				if err := d.Decode(into); err != nil {
					t.Fatal(err)
				}
			}
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			if !bytes.Equal(x, y) {
				t.Fatalf("%q became %q", text, out)
			}
		}
		documents, err := external.New(map[string]map[string]external.Document{"s": {"k": {JSON: out}}})
		if err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		v, err := documents.Get("s", "k").Value.JSON()
		if err != nil || !bytes.Equal(v, out) {
			t.Fatalf("%q is held as %q, %v", out, v, err)
		}
	})
}
