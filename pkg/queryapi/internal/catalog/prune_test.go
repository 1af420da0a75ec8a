package catalog

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/canonjson"
)

// compact is JSON as the index holds it.
func compact(t testing.TB, line []byte) ([]byte, schema.GroupVersionKind) {
	t.Helper()
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(line); err != nil {
		t.Fatal(err)
	}
	body, err := canonical(&object)
	if err != nil {
		t.Fatal(err)
	}
	return body, object.GroupVersionKind()
}

func TestPrune_ChangesNoRow(t *testing.T) {
	paths, err := filepath.Glob("../../../../../shared/corpus/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skip("the corpus is absent")
	}
	seen := map[schema.GroupKind]int{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			body, gvk := compact(t, line)
			if prunes[gvk.GroupKind()] == nil || !convertible(gvk) {
				continue
			}
			pruned := builtinPrinter(gvk).(*builtin)
			whole := *pruned
			whole.prune = nil
			want, wantErr := whole.row(body)
			got, err := pruned.row(body)
			if wantErr != nil { // what is pruned may be what is wrong
				continue
			}
			if err != nil || !reflect.DeepEqual(want.Cells, got.Cells) || !reflect.DeepEqual(want.Conditions, got.Conditions) {
				t.Errorf("%s: %v (%v), want %v\n%s", gvk, got.Cells, err, want.Cells, body)
			}
			seen[gvk.GroupKind()]++
		}
	}
	for kind := range prunes {
		if seen[kind] == 0 && kind.Group != "events.k8s.io" {
			t.Errorf("%s was not tried", kind)
		}
	}
}

// FuzzPrune checks that pruning survives anything, and keeps JSON JSON.
func FuzzPrune(f *testing.F) {
	f.Add([]byte(`{"a":1,"metadata":{"annotations":{"x":"\\\""},"labels":null,"name":"n"},"spec":{"containers":[{"args":["}"],"name":"c"},3],"volumes":[]}}`))
	f.Add([]byte(`{"data":{"k":"v","l":["]"]},"binaryData":7}`))
	f.Add([]byte(`{"metadata":{"annotations":`))
	f.Add([]byte(`"\`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var compacted bytes.Buffer
		valid := json.Compact(&compacted, body) == nil
		for _, p := range []*prune{prunes[schema.GroupKind{Kind: "Pod"}], values, workload} {
			p.append(nil, body)
			if valid {
				if out := p.append(nil, compacted.Bytes()); !json.Valid(out) {
					t.Errorf("%q became %q", compacted.Bytes(), out)
				}
			}
		}
		canonjson.Get(body, "spec")
		var object map[string]json.RawMessage
		if !valid || json.Unmarshal(compacted.Bytes(), &object) != nil || object == nil {
			return
		}
		unique, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range object {
			if key, err := json.Marshal(name); err != nil || len(key) != len(name)+2 {
				continue // escaped, as no name that is looked for is
			}
			if got := canonjson.Get(unique, name); !bytes.Equal(escaped(t, got), escaped(t, want)) {
				t.Errorf("%q of %q is %q, want %q", name, unique, got, want)
			}
		}
	})
}

// escaped writes JSON as json.Marshal does.
func escaped(t *testing.T, value json.RawMessage) []byte {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
