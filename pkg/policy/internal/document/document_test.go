package document_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/test/seed"
)

// samples cover every code path where the corpus is absent.
var samples = []string{
	`{}`, `[]`, `null`, `true`, `false`, `0`, `-1`, `1e3`, `-120343310189412045`, `1.50`, `""`, `"a\"b\\"`,
	`{"":1,"a":{"":[]},"b":[[],{},[1,[2]]],"é":"ü\n"}`,
	`{"a\"b":1,"c\\":{"d\\\\":"}"},"e":"\\"}`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":null,"labels":{"app":"web"},"name":"web-1","namespace":"shop"},` +
		`"spec":{"containers":[{"image":"nginx:1.27","name":"web","ports":[{"containerPort":8080}],"resources":{}},{"image":"envoy","name":"proxy"}],` +
		`"nodeName":"n1"},"status":{"conditions":[{"status":"True","type":"Ready"}],"phase":"Running"}}`,
}

// corpus returns the canonical bodies of real objects whose file's name ends so.
func corpus(tb testing.TB, suffix string, limit int) [][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "..", "shared", "corpus", "*"+suffix))
	if err != nil {
		tb.Fatal(err)
	}
	var bodies [][]byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<24)
		for lines.Scan() && len(bodies) < limit {
			bodies = append(bodies, canonical(tb, lines.Bytes()))
		}
	}
	return bodies
}

// canonical is encoding/json's form of a value without managedFields.
func canonical(tb testing.TB, data []byte) []byte {
	tb.Helper()
	v := decode(tb, data)
	if object, ok := v.(map[string]any); ok {
		if meta, ok := object["metadata"].(map[string]any); ok {
			delete(meta, "managedFields")
		}
	}
	return encode(tb, v)
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		tb.Fatal(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func decode(tb testing.TB, data []byte) any {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// prune is what a mask means, on maps.
func prune(v any, m *mask.Mask) any {
	if m.All {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, value := range v {
			child, named := m.Fields[key]
			if !named {
				child = m.Elem
			}
			if child != nil {
				kept[key] = prune(value, child)
			}
		}
		return kept
	case []any:
		kept := []any{}
		if m.Elem == nil {
			return kept
		}
		for _, value := range v {
			kept = append(kept, prune(value, m.Elem))
		}
		return kept
	}
	return v
}

// randomMask reads some of what v has, and some that it has not.
func randomMask(r *rand.Rand, v any) *mask.Mask {
	switch r.IntN(6) {
	case 0:
		return mask.Whole()
	case 1:
		return &mask.Mask{}
	}
	m := &mask.Mask{}
	switch v := v.(type) {
	case map[string]any:
		m.Fields = map[string]*mask.Mask{"absent": {}}
		for key, value := range v {
			switch r.IntN(4) {
			case 0, 1:
				m.Fields[key] = randomMask(r, value)
			case 2:
				m.Elem = randomMask(r, value)
			}
		}
		if m.Elem != nil && r.IntN(2) == 0 {
			m.Fields["absent"] = nil
		}
	case []any:
		for _, value := range v {
			m.Elem = mask.Union(m.Elem, randomMask(r, value))
		}
	}
	return m
}

// check holds Value to the oracle.
func check(t *testing.T, body []byte, m *mask.Mask) {
	t.Helper()
	want := prune(decode(t, body), m)
	wantValue, err := ast.InterfaceToValue(want)
	if err != nil {
		return // a number with an exponent that OPA refuses
	}
	got, err := document.Value(body, m)
	if err != nil {
		t.Fatalf("Value(%s, %v): %v", body, m, err)
	}
	if got.Compare(wantValue) != 0 {
		t.Fatalf("Value(%s, %v) = %v, want %v", body, m, got, wantValue)
	}
	if got.Hash() != wantValue.Hash() || !got.IsGround() {
		t.Fatalf("Value(%s, %v) has another hash than OPA's own value", body, m)
	}
	pruned := encode(t, want)
	again, err := document.Value(pruned, m)
	if err != nil || again.Compare(got) != 0 {
		t.Fatalf("Value(%s, %v) = %v, %v, of the complete body %v", pruned, m, again, err, got)
	}
}

func TestValue_EqualsOPAOnThePrunedObject(t *testing.T) {
	bodies := corpus(t, ".jsonl", 1500)
	if len(bodies) == 0 {
		t.Log("no corpus: only samples are looked at")
	}
	for _, s := range samples {
		bodies = append(bodies, canonical(t, []byte(s)))
	}
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for _, body := range bodies {
		check(t, body, mask.Whole())
		v := decode(t, body)
		for range 3 {
			check(t, body, randomMask(r, v))
		}
	}
}

func TestValue_NilMaskHasNone(t *testing.T) {
	if v, err := document.Value([]byte(`{"a":1}`), nil); v != nil || err != nil {
		t.Errorf("Value = %v, %v", v, err)
	}
}

func TestValue_RefusesMalformedBodies(t *testing.T) {
	for body, want := range map[string]error{
		``:              document.ErrSyntax,
		`{`:             document.ErrSyntax,
		`{"a"}`:         document.ErrSyntax,
		`{"a":}`:        document.ErrSyntax,
		`{"a":1,}`:      document.ErrSyntax,
		`{"a":1`:        document.ErrSyntax,
		`{"b":1,"a":1}`: document.ErrSyntax,
		`{"a":1,"a":1}`: document.ErrSyntax,
		`{ "a":1}`:      document.ErrSyntax,
		`[1 2]`:         document.ErrSyntax,
		`[1,]`:          document.ErrSyntax,
		`"a`:            document.ErrSyntax,
		`"a\`:           document.ErrSyntax,
		`"\x"`:          document.ErrSyntax,
		"\"\n\"":        document.ErrSyntax,
		`nul`:           document.ErrSyntax,
		`01`:            document.ErrSyntax,
		`1.`:            document.ErrSyntax,
		`-`:             document.ErrSyntax,
		`1e`:            document.ErrSyntax,
		`1e999999`:      document.ErrSyntax,
		`{}{}`:          document.ErrSyntax,
		strings.Repeat("[", document.MaxDepth+1) + strings.Repeat("]", document.MaxDepth+1): document.ErrDepth,
		`"` + strings.Repeat("a", document.MaxSize) + `"`:                                   document.ErrSize,
	} {
		if _, err := document.Value([]byte(body), mask.Whole()); !errors.Is(err, want) {
			t.Errorf("Value(%.40q) = %v, want %v", body, err, want)
		}
	}
	deep := []byte(strings.Repeat("[", document.MaxDepth) + strings.Repeat("]", document.MaxDepth))
	if _, err := document.Value(deep, mask.Whole()); err != nil {
		t.Errorf("a value as deep as allowed: %v", err)
	}
}

func FuzzValue(f *testing.F) {
	for i, s := range samples {
		f.Add([]byte(s), uint64(i))
	}
	for i, body := range corpus(f, "_Pod.jsonl", 5) {
		f.Add(body, uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		// Anything at all: an error or a value, and never a panic.
		r := rand.New(rand.NewPCG(seed, 1))
		for _, m := range []*mask.Mask{mask.Whole(), {}, {Elem: mask.Whole()}, {Elem: &mask.Mask{Elem: &mask.Mask{}}}} {
			v, err := document.Value(data, m)
			if (v == nil) == (err == nil) {
				t.Fatalf("Value = %v, %v", v, err)
			}
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if d.Decode(&v) != nil || len(data) > 1<<16 {
			return
		}
		body := encode(t, v)
		if _, err := document.Value(body, mask.Whole()); errors.Is(err, document.ErrDepth) {
			return
		}
		check(t, body, mask.Whole())
		check(t, body, randomMask(r, v))
	})
}
