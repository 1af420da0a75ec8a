package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
)

// served fails the test unless an object that is kept can be read by clients
// that trust API servers: typed, and by metadata alone.
func served(t *testing.T, gvk schema.GroupVersionKind, rec *aggregate.Record) {
	t.Helper()
	list := fmt.Appendf(nil, `{"items":[%s]}`, rec.Body)
	var metas metav1.PartialObjectMetadataList
	if err := kjson.Unmarshal(list, &metas); err != nil {
		t.Fatalf("%s is kept and has no metadata: %v", rec.Body, err)
	}
	if got := metas.Items[0]; got.APIVersion != gvk.GroupVersion().String() || got.Kind != gvk.Kind || got.Name != rec.Name || got.Namespace != rec.Namespace {
		t.Fatalf("%s is kept as %v %s", rec.Body, gvk, rec.Name)
	}
	if obj, err := scheme.New(gvk); err == nil {
		if err := kjson.Unmarshal(rec.Body, obj); err != nil {
			t.Fatalf("%s is kept and no %v: %v", rec.Body, gvk, err)
		}
	}
}

var widgetKind = schema.GroupVersionKind{Group: "shop.example", Version: "v1", Kind: "Widget"}

// unfits are objects, as %s of a group, version and kind, that no API server
// lets in, by what is wrong with them.
var unfits = map[string]string{
	"another version":     `{"apiVersion":"bogus/v9","kind":"KIND","metadata":{"name":"x","namespace":"n"}}`,
	"another kind":        `{"apiVersion":"VERSION","kind":"Secret","metadata":{"name":"x","namespace":"n"}}`,
	"no metadata":         `{"spec":{}}`,
	"metadata is text":    `{"metadata":"boom"}`,
	"no name":             `{"metadata":{"namespace":"n"}}`,
	"name is a number":    `{"metadata":{"name":1}}`,
	"name is a path":      `{"metadata":{"name":"../x"}}`,
	"name of a megabyte":  `{"metadata":{"name":"` + strings.Repeat("x", 1<<20) + `"}}`,
	"name for terminals":  `{"metadata":{"name":"\u001b[2J"}}`,
	"namespace is long":   `{"metadata":{"name":"x","namespace":"` + strings.Repeat("n", 64) + `"}}`,
	"namespace is a path": `{"metadata":{"name":"x","namespace":"a/b"}}`,
	"annotations":         `{"metadata":{"name":"x","annotations":"boom"}}`,
	"an annotation":       `{"metadata":{"name":"x","annotations":{"a":{"b":[1]}}}}`,
	"labels":              `{"metadata":{"name":"x","labels":7}}`,
	"a label":             `{"metadata":{"name":"x","labels":{"a":true}}}`,
	"a label's length":    `{"metadata":{"name":"x","labels":{"a":"` + strings.Repeat("v", 64) + `"}}}`,
	"owners":              `{"metadata":{"name":"x","ownerReferences":{}}}`,
	"an owner":            `{"metadata":{"name":"x","ownerReferences":[{"name":1}]}}`,
	"finalizers":          `{"metadata":{"name":"x","finalizers":[{}]}}`,
	"creationTimestamp":   `{"metadata":{"name":"x","creationTimestamp":"today"}}`,
	"generation":          `{"metadata":{"name":"x","generation":"2"}}`,
	"resourceVersion":     `{"metadata":{"name":"x","resourceVersion":7}}`,
	"nesting":             `{"metadata":{"name":"x"},"x":` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}`,
	"a number":            `{"metadata":{"name":"x"},"x":1e999}`,
}

func TestFit_DistinguishesWhatNoAPIServerLetsIn(t *testing.T) {
	for _, gvk := range []schema.GroupVersionKind{podKind, widgetKind} {
		for what, text := range unfits {
			t.Run(gvk.Kind+" "+what, func(t *testing.T) {
				bad := strings.NewReplacer("VERSION", gvk.GroupVersion().String(), "KIND", gvk.Kind).Replace(text)
				d := mustNew(t, gvk, JSON, Rules{})
				var rec aggregate.Record
				err := d.Object([]byte(bad), &rec)
				var unfit *UnfitError
				if !errors.Is(err, ErrUnfit) || !errors.As(err, &unfit) {
					t.Fatalf("error %v, want %v", err, ErrUnfit)
				}
				if len(unfit.Why) > 200 || strings.ContainsAny(unfit.Why, "\x1b\n") {
					t.Errorf("the reason is %q", unfit.Why)
				}
				// What is beside it is not touched.
				good := `{"metadata":{"name":"good","namespace":"n"}}`
				var fit, left int
				_, err = d.List([]byte(`{"items":[`+good+","+bad+","+good+`]}`), func(_ *aggregate.Record, unfit error) error {
					if unfit != nil {
						left++
					} else {
						fit++
					}
					return nil
				})
				if err != nil || fit != 2 || left != 1 {
					t.Errorf("of a list %d are fit, %d are not, then %v", fit, left, err)
				}
				var text strings.Builder
				for _, o := range []string{good, bad, good} {
					fmt.Fprintf(&text, "{\"type\":\"ADDED\",\"object\":%s}\n", o)
				}
				events, err := readEvents(d, strings.NewReader(text.String()), 4<<20)
				if len(events) != 3 || events[0].Unfit != nil || !errors.Is(events[1].Unfit, ErrUnfit) || events[2].Unfit != nil {
					t.Errorf("%d events, then %v", len(events), err)
				}
				if e := events[1]; e.Type != watch.Added {
					t.Errorf("event of type %s", e.Type)
				}
			})
		}
	}
}

func TestFit_ProtobufIsHeldToTheSameLimits(t *testing.T) {
	d := mustNew(t, podKind, Protobuf, Rules{})
	for _, meta := range []metav1.ObjectMeta{
		{},
		{Name: "a/b"},
		{Name: strings.Repeat("x", 1<<20)},
		{Name: "x", Namespace: "A"},
		{Name: "x", Labels: map[string]string{"a": strings.Repeat("v", 64)}},
		{Name: "x", ResourceVersion: strings.Repeat("1", 1000)},
	} {
		var rec aggregate.Record
		if err := d.Object(encodeProtobuf(t, podKind, &corev1.Pod{ObjectMeta: meta}), &rec); !errors.Is(err, ErrUnfit) {
			t.Errorf("%.60v: error %v, want %v", meta, err, ErrUnfit)
		}
	}
	var rec aggregate.Record
	if err := d.Object(encodeProtobuf(t, podKind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "system:x", Namespace: "n"}}), &rec); err != nil {
		t.Error(err)
	}
}

// TestFit_BuiltinTypes changes one value after the other of objects that have
// every field to one of another type: what is kept still decodes.
func TestFit_BuiltinTypes(t *testing.T) {
	others := []any{nil, true, 1.0, -1.5, 1e18, "text", "2020-01-01T00:00:00Z", "1e-999999999", []any{}, []any{1.0}, map[string]any{}, map[string]any{"a": 1.0}}
	kept, left := 0, 0
	for i, gvk := range fuzzKinds {
		d := mustNew(t, gvk, JSON, Rules{})
		obj, err := scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		random(uint64(i)+1).fill(reflect.ValueOf(obj).Elem(), 8)
		text, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		object["metadata"] = map[string]any{"name": "x", "namespace": "n", "labels": map[string]any{"a": "b"}}
		delete(object, "apiVersion")
		delete(object, "kind")
		var rec aggregate.Record
		check := func() {
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			switch err := d.Object(text, &rec); {
			case err == nil:
				kept++
				served(t, gvk, &rec)
			case errors.Is(err, ErrUnfit):
				left++
				obj, _ := scheme.New(gvk) //nolint:errcheck // as above
				if errText := err.Error(); strings.Contains(errText, "namespace") || strings.HasPrefix(errText, "binaryData") || errText == "spec.request has the wrong type" {
					break // a limit, and bytes that are a list of numbers
				}
				if !strings.Contains(string(text), "1e-999999999") && kjson.Unmarshal(rec.Body, obj) == nil && rec.Name != "" {
					t.Errorf("%v is left out, and clients could read it: %v: %s", gvk, err, text)
				}
			default:
				t.Fatal(err)
			}
		}
		check()
		if left > 0 {
			t.Fatalf("%v: an object of its type is left out: %s", gvk, text)
		}
		var visit func(v any, set func(any))
		visit = func(v any, set func(any)) {
			for _, other := range others {
				set(other)
				check()
			}
			set(v)
			switch v := v.(type) {
			case map[string]any:
				for k, e := range v {
					visit(e, func(other any) { v[k] = other })
				}
			case []any:
				for j := range v {
					visit(v[j], func(other any) { v[j] = other })
				}
			}
		}
		for k, v := range object {
			visit(v, func(other any) { object[k] = other })
		}
		left = 0
	}
	t.Logf("%d objects kept", kept)
}
