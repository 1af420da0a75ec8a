package canonjson_test

import (
	"errors"
	"strings"
	"testing"

	"federator.dev/federator/internal/canonjson"
)

func TestReader_Text(t *testing.T) {
	for in, want := range map[string]struct {
		raw     string
		escaped bool
		fails   bool
	}{
		`""`:                                {},
		`"a"`:                               {raw: "a"},
		`"12345678"`:                        {raw: "12345678"},
		`"äöü€ 12345678"`:                   {raw: "äöü€ 12345678"},
		`"a\"b"`:                            {raw: `a\"b`, escaped: true},
		`"a\\"`:                             {raw: `a\\`, escaped: true},
		`"` + strings.Repeat("x", 99) + `"`: {raw: strings.Repeat("x", 99)},
		"\"a\x00\"":                         {fails: true},
		"\"1234567890\n\"":                  {fails: true},
		`"`:                                 {fails: true},
		`"a`:                                {fails: true},
		`"a\"`:                              {fails: true},
		`"\`:                                {fails: true},
		`a"`:                                {fails: true},
		``:                                  {fails: true},
	} {
		r := canonjson.NewReader([]byte(in))
		raw, escaped := r.Text()
		if string(raw) != want.raw || escaped != want.escaped || (r.End() != nil) != want.fails {
			t.Errorf("%q is %q, escaped %v: %v", in, raw, escaped, r.Err())
		}
	}
}

func TestReader_Number(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "-0", "12": "12", "1.50": "1.50", "-1.5e3": "-1.5e3", "1E+9": "1E+9", "9007199254740993": "9007199254740993", "1,": "1", "0}": "0",
		"": "", "-": "", "01": "", "1.": "", ".5": "", "1e": "", "1e+": "", "+1": "", "NaN": "", `"1"`: "",
	} {
		r := canonjson.NewReader([]byte(in))
		if got := r.Number(); string(got) != want || (r.Err() != nil) != (want == "") {
			t.Errorf("%q is %q: %v", in, got, r.Err())
		}
	}
}

func TestReader_Value(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":[1,{"b":"}]\"\\"}],"c":null},`:   `{"a":[1,{"b":"}]\"\\"}],"c":null}`,
		`[[],{},"",-1.5e3,true]]`:              `[[],{},"",-1.5e3,true]`,
		`"\\\\\""x`:                            `"\\\\\""`,
		`"\\":1`:                               `"\\"`,
		`"12345678901234567890123456789\"\\",`: `"12345678901234567890123456789\"\\"`,
		`1}`:                                   `1`,
		`true`:                                 `true`,
		`[1`:                                   "", `"a`: "", `"\"`: "", `"12345678901234567890123456789\"`: "", `]`: "", `}`: "", `,`: "", `:`: "", ``: "",
	} {
		r := canonjson.NewReader([]byte(in))
		if got := r.Value(); string(got) != want || (r.Err() != nil) != (want == "") {
			t.Errorf("%s starts with %q: %v", in, got, r.Err())
		}
	}
}

func TestReader_IsExactAboutBrackets(t *testing.T) {
	for _, in := range []string{`{"a":1]`, `[1}`, `[1`, `{"a":1`, `{"a":1,}`, `[1,]`, `{,}`, `[,]`, `{"a"}`, `{"a":}`, `{"a",1}`, `{1:1}`, `[1 ]`, `{"a" :1}`, ` 1`, `1 `, `1,`, `[1]]`} {
		if v, err := decode([]byte(in)); !errors.Is(err, canonjson.ErrSyntax) {
			t.Errorf("%s is %v: %v", in, v, err)
		}
	}
}

func TestReader_StandsStillAfterAFailure(t *testing.T) {
	r := canonjson.NewReader([]byte(`{"a":x,"b":[1],"c":"d"}`))
	r.Open('{')
	r.Key()
	r.Number()
	want := r.Err()
	r.Skip()
	if key, _ := r.Key(); key != nil || r.Open('[') || r.Next('}') || r.Value() != nil || r.Peek() != 0 || r.Pos() != 5 {
		t.Errorf("reading goes on at %d", r.Pos())
	}
	if err := r.End(); !errors.Is(err, canonjson.ErrSyntax) || err.Error() != want.Error() || want.Error() != "not canonical JSON: at byte 5 of 23" {
		t.Error(err)
	}
}

func TestReader_ZeroReadsNothing(t *testing.T) {
	var r canonjson.Reader
	if err := r.End(); err != nil {
		t.Error(err)
	}
	if r.Skip(); r.Err() == nil {
		t.Error("a value of nothing")
	}
}

func TestGet(t *testing.T) {
	const body = `{"a":{"b":[1],"b":2},"q\"":{"\u0061":"x"},"z":1}`
	for path, want := range map[string]string{
		"": body, "a": `{"b":[1],"b":2}`, "a/b": `[1]`, `q"/a`: `"x"`, "z": "1",
		"b": "", "a/c": "", "z/a": "", "a/b/c": "", `q\"`: "",
	} {
		var steps []string
		if path != "" {
			steps = strings.Split(path, "/")
		}
		if got := canonjson.Get([]byte(body), steps...); string(got) != want {
			t.Errorf("%s is %s", path, got)
		}
	}
	for _, in := range []string{``, `{`, `{"a"`, `{"a":`, `[{"a":1}]`, `{"b":1]`, `"a"`} {
		if got := canonjson.Get([]byte(in), "a"); got != nil {
			t.Errorf("%s has %q", in, got)
		}
	}
}

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{`a`: "a", `\"\\\/\b\n`: "\"\\/\b\n", `\u00e4\ud83d\ude00`: "ä😀", `\ud800`: "\ufffd"} {
		if got, err := canonjson.Unquote([]byte(raw)); got != want || err != nil {
			t.Errorf("%s is %q: %v", raw, got, err)
		}
	}
	for _, raw := range []string{`\`, `\q`, `\u12`, `\u12g4`} {
		if got, err := canonjson.Unquote([]byte(raw)); !errors.Is(err, canonjson.ErrSyntax) {
			t.Errorf("%s is %q: %v", raw, got, err)
		}
	}
}

func TestReader_LeavesWhatIsLeft(t *testing.T) {
	for in, rest := range map[string]string{
		`{"a":1,"b":{"c":[2,"}"]},"d":[]}x`: "x",
		`{"a":1},2`:                         ",2",
		`{"a":1,"b":{}`:                     "an error",
		`{"a":1`:                            "an error",
		`{"a":1"b"`:                         "an error",
	} {
		r := canonjson.NewReader([]byte(in))
		r.Open('{')
		r.Key()
		r.Skip()
		r.Leave()
		if rest == "an error" {
			if !errors.Is(r.Err(), canonjson.ErrSyntax) {
				t.Errorf("%s: %v", in, r.Err())
			}
			continue
		}
		if got := in[r.Pos():]; got != rest || r.Err() != nil {
			t.Errorf("%s: %q is left, %v", in, got, r.Err())
		}
	}
}

func TestKeys_HaveToBeInOrder(t *testing.T) {
	for in, want := range map[string]string{
		`{"":1,"a":2,"\u0062":3}`: "|a|b", `{"b":1,"a":2}`: "an error", `{"a":1,"a":2}`: "an error", `{"":1,"":2}`: "an error", `{"a"}`: "an error", `{"\q":1}`: "an error",
	} {
		r := canonjson.NewReader([]byte(in))
		var keys canonjson.Keys
		var names []string
		var err error
		for more := r.Open('{'); more && err == nil; more = r.Next('}') {
			var name string
			name, err = keys.Next(&r)
			names = append(names, name)
			r.Skip()
		}
		if want == "an error" != (err != nil) || err != nil && !errors.Is(err, canonjson.ErrSyntax) || err == nil && strings.Join(names, "|") != want {
			t.Errorf("%s has the keys %q: %v", in, names, err)
		}
	}
}
