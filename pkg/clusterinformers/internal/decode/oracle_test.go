package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"federator.dev/federator/pkg/aggregate"
)

// oracleObject is what client-go's own decoders make of an object.
func oracleObject(gvk schema.GroupVersionKind, enc Encoding, data []byte) (aggregate.Record, error) {
	if enc == Protobuf {
		obj, actual, err := protobuf.NewSerializer(scheme, scheme).Decode(data, &gvk, nil)
		if err != nil {
			return aggregate.Record{}, err
		}
		if *actual != gvk {
			return aggregate.Record{}, errors.New("another kind")
		}
		if o, err := meta.Accessor(obj); err == nil {
			o.SetManagedFields(nil)
		}
		if data, err = json.Marshal(obj); err != nil {
			return aggregate.Record{}, err
		}
	}
	var m map[string]any
	if err := utiljson.Unmarshal(data, &m); err != nil {
		return aggregate.Record{}, err
	}
	return oracleRecord(gvk, m)
}

func oracleRecord(gvk schema.GroupVersionKind, m map[string]any) (aggregate.Record, error) {
	if m == nil {
		return aggregate.Record{}, errors.New("null")
	}
	u := unstructured.Unstructured{Object: m}
	if u.GetAPIVersion() == "" {
		u.SetAPIVersion(gvk.GroupVersion().String())
	}
	if u.GetKind() == "" {
		u.SetKind(gvk.Kind)
	}
	unstructured.RemoveNestedField(m, "metadata", "managedFields")
	rec := aggregate.Record{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
	for k, v := range u.GetLabels() {
		rec.Labels = append(rec.Labels, aggregate.Label{Key: k, Value: v})
	}
	slices.SortFunc(rec.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	for _, o := range u.GetOwnerReferences() {
		rec.Owners = append(rec.Owners, aggregate.Owner{
			APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: string(o.UID),
			Controller: o.Controller != nil && *o.Controller,
		})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return rec, err
	}
	rec.Body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return rec, nil
}

// sameRecord fails the test where two records differ.
func sameRecord(t *testing.T, got, want *aggregate.Record) {
	t.Helper()
	if !bytes.Equal(got.Body, want.Body) {
		i := 0
		for i < min(len(got.Body), len(want.Body)) && got.Body[i] == want.Body[i] {
			i++
		}
		t.Fatalf("body differs at byte %d\n got …%.300s\nwant …%.300s", i, got.Body[max(0, i-40):], want.Body[max(0, i-40):])
	}
	if got.Namespace != want.Namespace || got.Name != want.Name || got.UID != want.UID || got.ResourceVersion != want.ResourceVersion {
		t.Fatalf("metadata of\n%+v\nwant\n%+v", *got, *want)
	}
	if !slices.Equal(got.Labels, want.Labels) {
		t.Fatalf("labels %q, want %q", got.Labels, want.Labels)
	}
	if !slices.Equal(got.Owners, want.Owners) {
		t.Fatalf("owners %+v, want %+v", got.Owners, want.Owners)
	}
}

// decoded fails the test unless an object decoded, fit to be kept or not.
func decoded(t testing.TB, err error) {
	t.Helper()
	if err != nil && (!errors.Is(err, ErrUnfit) || errors.Is(err, ErrMalformed)) {
		t.Fatal(err)
	}
}

func mustNew(t testing.TB, gvk schema.GroupVersionKind, enc Encoding, rules Rules) *Decoder {
	t.Helper()
	d, err := New(gvk, enc, rules)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
