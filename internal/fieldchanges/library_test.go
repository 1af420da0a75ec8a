package fieldchanges_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"federator.dev/federator/internal/fieldchanges"
)

// byLibrary applies operations one by one, as lenient as the library can be: what does not fit is left out.
func byLibrary(t *testing.T, object string, options *jsonpatch.ApplyOptions, operations ...string) (after string, failed int) {
	t.Helper()
	for _, o := range operations {
		p, err := jsonpatch.DecodePatch([]byte("[" + o + "]"))
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() != nil {
					failed, after = failed+1, "panic"
				}
			}()
			next, err := p.ApplyWithOptions([]byte(object), options)
			if err != nil {
				failed++
				return
			}
			object = string(next)
		}()
	}
	if after == "" {
		after = object
	}
	return after, failed
}

// TestLibrary_DoesOtherwise is why this package has a JSON patch of its own. When a case fails because the library has changed,
// doc.go is to be corrected; when none is left, the library is to be used.
func TestLibrary_DoesOtherwise(t *testing.T) {
	lenient := jsonpatch.NewApplyOptions()
	lenient.SupportNegativeIndices, lenient.AllowMissingPathOnRemove = false, true
	inventing := *lenient
	inventing.EnsurePathExistsOnAdd = true
	for name, c := range map[string]struct {
		options                   *jsonpatch.ApplyOptions
		object, operation         string
		ours, library             string
		oursFailed, libraryFailed int
	}{
		"a test panics on nulls in lists":    {lenient, `{"a":[null]}`, `{"op":"test","path":"/a","value":[1]}`, `{"a":[null]}`, `panic`, 1, 1},
		"a test finds null where nothing is": {lenient, `{"a":1}`, `{"op":"test","path":"/b","value":null}`, `{"a":1}`, `{"a":1}`, 1, 0},
		"the whole object is a field":        {lenient, `{"a":{"b":1}}`, `{"op":"copy","from":"/a","path":""}`, `{"b":1}`, `{"":{"b":1},"a":{"b":1}}`, 0, 0},
		"positions may begin with a zero":    {lenient, `{"a":[1,2]}`, `{"op":"remove","path":"/a/01"}`, `{"a":[1,2]}`, `{"a":[1]}`, 1, 0},
		"what is above a field is invented":  {&inventing, `{"a":1}`, `{"op":"add","path":"/b/c","value":1}`, `{"a":1}`, `{"a":1,"b":{"c":1}}`, 1, 0},
	} {
		ops, err := fieldchanges.ParsePatch([]byte("[" + c.operation + "]"))
		if err != nil {
			t.Fatal(err)
		}
		ours, failed := c.object, 0
		if next, err := fieldchanges.Patch(decode(t, c.object), ops); err != nil {
			failed++
		} else {
			ours = text(t, next)
		}
		if ours != c.ours || failed != c.oursFailed {
			t.Errorf("%s: ours makes %s, %d failed", name, ours, failed)
		}
		library, failed := byLibrary(t, c.object, c.options, c.operation)
		if library != "panic" {
			library = text(t, decode(t, library))
		}
		if library != c.library || failed != c.libraryFailed {
			t.Errorf("%s: the library makes %s, %d failed: want %s", name, library, failed, c.library)
		}
	}
}

// TestLibrary_DoesTheSameOtherwise: beside those cases, what fits, and what comes of it, is the same.
func TestLibrary_DoesTheSameOtherwise(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false
	fit := 0
	for range 50_000 {
		path := func() string {
			s := ""
			for range 1 + r.IntN(3) {
				s += "/" + []string{"a", "b", "c~1d", "~0", "0", "1", "-", "-1"}[r.IntN(8)]
			}
			return s
		}
		before := map[string]any{"a": value(r, 3), "b": value(r, 3)}
		raw := text(t, map[string]any{"op": []string{"add", "replace", "remove", "move", "copy"}[r.IntN(5)], "path": path(), "from": path(), "value": value(r, 2)})
		ops, err := fieldchanges.ParsePatch([]byte("[" + raw + "]"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fieldchanges.Patch(before, ops)
		want, failed := byLibrary(t, text(t, before), options, raw)
		if (err != nil) != (failed > 0) {
			t.Fatalf("%s after %s: %v, the library fails %d times", text(t, before), raw, err, failed)
		}
		if err == nil {
			if fit++; !same(t, text(t, got), []byte(want)) {
				t.Fatalf("%s after %s: %s, want %s", text(t, before), raw, text(t, got), want)
			}
		}
	}
	if fit < 5000 {
		t.Errorf("only %d operations fit", fit)
	}
}

// BenchmarkPatch_Lenient compares a patch of 100 operations on an object of 2,000 fields, each by itself, with the library's.
func BenchmarkPatch_Lenient(b *testing.B) {
	object := map[string]any{}
	for i := range 2000 {
		object[fmt.Sprint("field-", i)] = json.Number(fmt.Sprint(i))
	}
	undo, err := json.Marshal(object)
	if err != nil {
		b.Fatal(err)
	}
	var operations []jsonpatch.Operation
	for i := range 100 {
		o := jsonpatch.Operation{}
		for field, v := range map[string]any{"op": "replace", "path": fmt.Sprint("/field-", i), "value": -1} {
			text, err := json.Marshal(v)
			if err != nil {
				b.Fatal(err)
			}
			raw := json.RawMessage(text)
			o[field] = &raw
		}
		operations = append(operations, o)
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := fieldchanges.Of(fieldchanges.Record{Verb: "patch", Patch: patch, Inverse: "patch", Undo: undo}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			text := undo
			for _, o := range operations {
				if text, err = (jsonpatch.Patch{o}).Apply(text); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
