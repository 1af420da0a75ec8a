package decode

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"federator.dev/federator/pkg/aggregate"
)

// oracleRules applies rules to a body by way of a map.
func oracleRules(t *testing.T, r Rules, body []byte) []byte {
	t.Helper()
	var m map[string]any
	if err := utiljson.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if r.Redact {
		for _, f := range []string{"data", "binaryData", "stringData"} {
			if vals, ok := m[f].(map[string]any); ok {
				for k := range vals {
					vals[k] = ""
				}
			} else if m[f] != nil {
				m[f] = ""
			}
		}
		u := unstructured.Unstructured{Object: m}
		a := u.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		delete(a, lastApplied)
		a[redactedKey] = "true"
		u.SetAnnotations(a)
	}
	for _, p := range r.Drop {
		if len(p) > 0 {
			unstructured.RemoveNestedField(m, p...)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

var someRules = []Rules{
	{Redact: true},
	{Drop: [][]string{{"status"}, {"metadata", "labels"}, {"spec", "template", "spec"}, {"a", "b"}, {"a"}}},
	{Redact: true, Drop: [][]string{{"data", "key"}, {"metadata", "annotations", redactedKey}, {"stringData"}}},
	{Redact: true, Drop: [][]string{{"metadata", "annotations"}, {"kind"}}},
	{Redact: true, Drop: [][]string{{"metadata"}}},
}

func TestRules_AreAppliedAsToAMap(t *testing.T) {
	bodies := [][]byte{}
	for _, s := range []string{
		`{}`, `{"metadata":null}`, `{"metadata":"x"}`, `{"metadata":{}}`, `{"metadata":{"annotations":null}}`, `{"metadata":{"annotations":[1]}}`,
		`{"metadata":{"annotations":{"a":1,"b":"c"}}}`, `{"metadata":{"annotations":{"a":null,"federator.dev/redacted":"no","z":"\\"},"name":"x"}}`,
		`{"metadata":{"annotations":{"federator.dev/redacted":null}}}`, `{"metadata":{"a":1,"z":2}}`, `{"a":1,"z":{}}`,
		`{"data":{"key":"v","x":{"y":[1]}},"binaryData":null,"stringData":["secret"]}`, `{"data":{},"a":{"b":{"c":1},"d":2}}`, `{"a\n":1,"data":{"\n":"x"}}`,
	} {
		var m map[string]any
		if err := utiljson.Unmarshal([]byte(s), &m); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, oracleRules(t, Rules{}, []byte(s)))
	}
	for i, s := range samples(t) {
		if i >= 20 && i%8 != 0 {
			continue // the corpus repeats itself
		}
		bodies = append(bodies, oracleRules(t, Rules{}, s.json))
	}
	for _, r := range someRules {
		s := newShaper(r)
		for _, b := range bodies {
			if got, want := s.shape(b), oracleRules(t, r, b); !bytes.Equal(got, want) {
				t.Fatalf("%+v of\n%.500s\ngives\n%.500s\nwant\n%.500s", r, b, got, want)
			}
		}
	}
}

func TestRules_ShapeTheBodyOnly(t *testing.T) {
	in := `{"apiVersion":"v1","data":{"key":"c2VjcmV0","z":"eA=="},"kind":"Secret","metadata":{"annotations":` +
		`{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"key\":\"c2VjcmV0\"}}","note":"n"},"labels":{"a":"b"},"name":"s"},"stringData":"x","type":"Opaque"}`
	secret := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	for name, c := range map[string]struct {
		rules Rules
		want  string
	}{
		"none": {Rules{}, in},
		"redact": {Rules{Redact: true}, `{"apiVersion":"v1","data":{"key":"","z":""},"kind":"Secret","metadata":{"annotations":` +
			`{"federator.dev/redacted":"true","note":"n"},"labels":{"a":"b"},"name":"s"},"stringData":"","type":"Opaque"}`},
		"drop": {
			Rules{Drop: [][]string{{"data"}, {"metadata", "annotations"}, {"metadata", "labels"}, {"absent", "x"}, {"stringData"}, {}}},
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"Opaque"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var rec aggregate.Record
			decoded(t, mustNew(t, secret, JSON, c.rules).Object([]byte(in), &rec))
			if string(rec.Body) != c.want {
				t.Errorf("body\n%s\nwant\n%s", rec.Body, c.want)
			}
			if rec.Name != "s" || len(rec.Labels) != 1 {
				t.Errorf("metadata %+v", rec)
			}
		})
	}
}
