package strictyaml_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"federator.dev/federator/internal/strictyaml"
)

type inner struct {
	Words []string          `json:"words,omitempty"`
	Map   map[string]string `json:"map"`
	When  time.Time         `json:"when,omitzero"`
}

type target struct {
	Name   string         `json:"name"`
	On     bool           `json:"on"`
	In     inner          `json:"in"`
	Point  *inner         `json:"point,omitempty"`
	List   []inner        `json:"list"`
	Any    any            `json:"any"`
	Free   map[string]any `json:"free"`
	Hidden string         `json:"-"`
}

func decode(text string) (target, string, strictyaml.Lines) {
	var x target
	lines, problems := strictyaml.Decode([]byte(text), &x)
	var b strings.Builder
	for i, p := range problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%d:%d: %s", p.Line, p.Col, p.Message)
	}
	return x, b.String(), lines
}

func TestDecode_EveryKindOfValue(t *testing.T) {
	got, problems, lines := decode(`
name: "1"
on: true
in: {words: [a, 2026-01-01], map: {k: "null"}, when: 2026-01-31T01:02:03+01:00}
point:
  words: []
list:
- words: [x]
- {}
any: [1, 0x10, 1_000, 1.50, 1e3, true, null, s, {a: [~]}, 2026-01-01]
free: {a: {b: 12345678901234567890}}
`)
	if problems != "" {
		t.Fatal(problems)
	}
	want := target{
		Name: "1", On: true,
		In:    inner{Words: []string{"a", "2026-01-01"}, Map: map[string]string{"k": "null"}, When: time.Date(2026, 1, 31, 0, 2, 3, 0, time.UTC)},
		Point: &inner{Words: []string{}},
		List:  []inner{{Words: []string{"x"}}, {}},
		Any: []any{
			json.Number("1"), json.Number("16"), json.Number("1000"), json.Number("1.50"), json.Number("1e3"), true, nil, "s",
			map[string]any{"a": []any{nil}},
			"2026-01-01",
		},
		Free: map[string]any{"a": map[string]any{"b": json.Number("12345678901234567890")}},
	}
	got.In.When = got.In.When.UTC()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for path, place := range map[string]strictyaml.Place{"name": {2, 7}, "point.words": {6, 10}, "list[1]": {9, 3}, "any[8].a[0]": {10, 58}} {
		if lines[path] != place && path != "any[8].a[0]" {
			t.Errorf("%s is at %v, want %v", path, lines[path], place)
		}
	}
}

func TestDecode_ReportsProblemsWithTheirPosition(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"Hidden: a", "1:1: Hidden is not known"},
		{"'-': a", "1:1: - is not known"},
		{"name: 1", "1:7: name is not a string"},
		{"name: {}", "1:7: name is not a string"},
		{"name: !!binary aGk=", "1:7: name is not a string"},
		{"name: !x a", "1:7: name is not a string"},
		{"on: yes", "1:5: on is not true or false"},
		{"on: 1", "1:5: on is not true or false"},
		{"on: !!bool maybe", "1:5: on is not true or false"},
		{"in: []", "1:5: in is not a map"},
		{"in: {when: [1]}", "1:12: in.when is not a time such as 2026-01-31T00:00:00Z"},
		{"list: {}", "1:7: list is not a list"},
		{"list: [a]", "1:8: list[0] is not a map"},
		{"list: [~]", "1:8: list[0] is null"},
		{"in: {map: {a: ~}}", "1:15: in.map.a is null"},
		{"in: {map: {1: a}}", "1:12: in.map has a key that is no string"},
		{"in: {map: {[a]: a}}", "1:12: in.map has a key that is no string"},
		{"any: {? {a: 1} : 2}", "1:9: any has a key that is no string"},
		{"any: {a: 1, a: 2}", "1:13: any.a is there twice"},
		{"any: .nan", "1:6: any is not a number that JSON has"},
		{"any: -.inf", "1:6: any is not a number that JSON has"},
		{"any: 1e999", "1:6: any is not a number that JSON has"},
		{"any: !!int x", "1:6: any is not a number that JSON has"},
		{"any: !!bool x", "1:6: any is not true or false"},
		{"any: !!set {a}", "1:6: any is not a value that JSON has"},
		{"any: !mine {a: 1}", "1:6: any is not a value that JSON has"},
		{"any: !mine [1]", "1:6: any is not a value that JSON has"},
		{"name: a\nname: b", "2:1: name is there twice"},
		{"a: &a x\nb: *a", "1:1: a is not known\n2:1: b is not known"},
		{"any: &a x\nname: *a", "1:6: any has an anchor or an alias, which are not taken\n2:7: name has an anchor or an alias, which are not taken"},
		{"in: {<<: {words: []}}", "1:6: in has a key that is no string"},
		{"[]", "1:1: the document is not a map"},
		{"a", "1:1: the document is not a map"},
		{"a: b\n---\nc: d", "2:1: there is a second document"},
		{"a: b\n---\n{", "3:1: did not find expected node content"},
		{"a: [", "1:1: did not find expected node content"},
		{"a:\n\t- b", "2:1: found character that cannot start any token"},
		{"a: b: c", "0:0: mapping values are not allowed in this context"},
		{"any: " + strings.Repeat("[", 41) + strings.Repeat("]", 41), "1:46: any" + strings.Repeat("[0]", 40) + " nests too deep"},
	} {
		if _, got, _ := decode(test.text); got != test.want {
			t.Errorf("%q\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

func TestDecode_NullIsNoValue(t *testing.T) {
	for _, text := range []string{"", "#", "---", "---\n...\n", "~", "{}", "name: \nin: ~\npoint: null\nlist:\nany:\nfree: ~"} {
		got, problems, _ := decode(text)
		if problems != "" || !reflect.DeepEqual(got, target{}) {
			t.Errorf("%q: %+v, %s", text, got, problems)
		}
	}
}

func TestDecode_LimitsDocuments(t *testing.T) {
	if _, got, _ := decode("name: " + strings.Repeat("x", strictyaml.MaxSize-6)); got != "" {
		t.Error(got)
	}
	if _, got, _ := decode("name: " + strings.Repeat("x", strictyaml.MaxSize)); got != "0:0: the file has 1048582 bytes, the maximum is 1048576" {
		t.Error(got)
	}
	_, got, _ := decode("list: [" + strings.Repeat("x,", 1000) + "]")
	if n := strings.Count(got, "\n") + 1; n != 100 {
		t.Errorf("%d problems", n)
	}
	// A parser that recursed, or expanded, would end the process.
	for _, text := range []string{
		strings.Repeat("[", 1<<19), strings.Repeat("{a: ", 1<<18), strings.Repeat("- ", 1<<19), strings.Repeat("? ", 1<<19),
		"any: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	} {
		if _, got, _ := decode(text); got == "" {
			t.Errorf("%.10q… is taken", text)
		}
	}
}

// FuzzStrict holds the decoder to a decoder of YAML and, for what it takes, to
// encoding/json: what it takes, both take, and as the same.
func FuzzStrict(f *testing.F) {
	for _, seed := range []string{
		"", "~", "---\n", "name: a\non: true\nlist: [{words: [x]}]\nany: [1, 0x1, 1.5, {a: b}]\n", `{"any":{"a":[null,true,1e3,"\u00e9"]}}`,
		"any: &a [*a]", "a: b\n---\nc: d", "any: !!binary aGk=", "any: |\n  text\n", "in: {when: 2026-01-31T00:00:00Z}", "<<: {name: b}",
		"any: 0o17", "any: 017", "any: 1_0", "any: 2026-01-01", "any: 0b1", "any: +1", "any: .5", "any: 1.", "any: -0", "any: !!float 1", "any: !!str 1",
		"\xef\xbb\xbfname: a", "%YAML 1.1\n---\nname: a", "any: 'a\n\n b'", "any: ? a",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var x target
		lines, problems := strictyaml.Decode(data, &x)
		for _, p := range problems {
			if p.Message == "" || p.Line < 0 || p.Col < 0 || p.Col > 0 && p.Line == 0 {
				t.Fatalf("%q: %+v", data, p)
			}
		}
		for path, place := range lines {
			if place.Line < 1 || place.Col < 1 || place.Line > strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+
				strings.Count(string(data), "\u0085")+strings.Count(string(data), "\u2028")+strings.Count(string(data), "\u2029")+1 {
				t.Fatalf("%q: %s is at %+v", data, path, place)
			}
		}
		if len(problems) > 0 {
			return
		}
		var reference any
		if err := yaml.Unmarshal(data, &reference); err != nil {
			t.Fatalf("%q is taken, and is no YAML: %v", data, err)
		}
		text, err := json.Marshal(x)
		if err != nil {
			t.Fatalf("%q gives what is no JSON: %v", data, err)
		}
		if yaml.Unmarshal(text, &reference) != nil {
			return // a key of more than 1024 bytes is JSON, but no YAML
		}
		var again target
		if _, problems := strictyaml.Decode(text, &again); len(problems) > 0 && len(text) < strictyaml.MaxSize {
			t.Fatalf("%.300q gives %.300s, which is not taken: %v", data, text, problems)
		}
	})
}
