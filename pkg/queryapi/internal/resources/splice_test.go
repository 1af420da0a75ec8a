package resources

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// canonical returns an object's JSON as the index holds it, and what has to be
// sent of it.
func canonical(t testing.TB, raw []byte, added addedMetadata) (body []byte, want map[string]any, ok bool) {
	t.Helper()
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return nil, nil, false
	}
	meta, isMap := object["metadata"].(map[string]any)
	annotations, isAnnotations := meta["annotations"].(map[string]any)
	if !isMap || !isAnnotations && meta["annotations"] != nil {
		return nil, nil, false
	}
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations["federator.dev/member"], annotations["federator.dev/resource-version"] = added.member, added.version
	meta["annotations"], meta["resourceVersion"] = annotations, revisionString(added.revision)
	return body, object, true
}

// spliced checks one object both ways that it can be sent.
func spliced(t testing.TB, raw []byte) bool {
	t.Helper()
	added := addedMetadata{member: `fleet/"eu"`, version: "17\u2028", revision: aggregate.Revision(5)<<32 + 9}
	body, want, ok := canonical(t, raw, added)
	if !ok {
		return false
	}
	var s splicer
	for name, c := range map[string]struct {
		make func(dst, body []byte, added addedMetadata) ([]byte, error)
		want map[string]any
	}{
		"object":  {s.appendObject, want},
		"partial": {s.appendPartial, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": want["metadata"]}},
	} {
		out, err := c.make([]byte("before"), body, added)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, body)
		}
		rest, found := strings.CutPrefix(string(out), "before")
		var got map[string]any
		if err := json.Unmarshal([]byte(rest), &got); err != nil || !found {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Fatalf("%s: got\n%s\nof\n%s", name, rest, body)
		}
	}
	return true
}

var samples = []string{
	`{"kind":"Pod","metadata":{"name":"a"}}`,
	`{"metadata":{"annotations":null,"name":"a","resourceVersion":"1"},"spec":{}}`,
	`{"metadata":{"annotations":{"a":"b","federator.dev/member":"forged","z":"}\\\"{"},"resourceVersion":"12"},"zz":[1,[{}],"x",null,true,-1.5e3]}`,
	`{"a":"\"metadata\":{","metadata":{},"b":{"metadata":{"name":"inner"}}}`,
}

func TestSplicer_AddsMetadataToObjects(t *testing.T) {
	for _, s := range samples {
		if !spliced(t, []byte(s)) {
			t.Errorf("%s was not looked at", s)
		}
	}
	var s splicer
	for _, bad := range []string{``, `{`, `[]`, `{"kind":"Pod"}`, `{"metadata":1}`, `{"metadata":{}`, `{"metadata":{}}x`, `{"metadata":{"annotations":[]}}`} {
		if out, err := s.appendObject(nil, []byte(bad), addedMetadata{}); err == nil {
			t.Errorf("%q became %q", bad, out)
		}
	}
}

func TestSplicer_AddsMetadataToRealObjects(t *testing.T) {
	files, err := filepath.Glob("../../../../../shared/corpus/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the corpus of real objects is not here")
	}
	n := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if spliced(t, []byte(line)) {
				n++
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d objects were looked at", n)
	}
}

func FuzzSplice(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s splicer
		_, _ = s.appendObject(nil, raw, addedMetadata{}) // whatever it is, it does not crash
		_, _ = s.appendPartial(nil, raw, addedMetadata{})
		spliced(t, raw)
	})
}
