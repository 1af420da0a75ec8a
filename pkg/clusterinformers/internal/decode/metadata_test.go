package decode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/pkg/clusterinformers/internal/decode"
)

// identities are what a list of metadata says in both encodings.
func identities(t *testing.T) (list metav1.PartialObjectMetadataList, asJSON, asProtobuf []byte, want []decode.Identity) {
	t.Helper()
	list.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
	list.ResourceVersion, list.Continue = "42", "next"
	for _, id := range []decode.Identity{{"a", "x", "u1", "1"}, {"", "cluster-scoped", "u2", "2"}, {"b-c", "y", "", ""}} {
		want = append(want, id)
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: id.Namespace, Name: id.Name, UID: types.UID(id.UID), ResourceVersion: id.ResourceVersion, Labels: map[string]string{"a": "b"},
			OwnerReferences: []metav1.OwnerReference{{UID: "other", Name: "other"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}},
		}})
	}
	asJSON, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: list.APIVersion, Kind: list.Kind}, Raw: raw}
	envelope, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return list, asJSON, append([]byte("k8s\x00"), envelope...), want
}

func TestIdentities_AreThoseOfTheList(t *testing.T) {
	_, asJSON, asProtobuf, want := identities(t)
	for enc, body := range map[decode.Encoding][]byte{decode.JSON: asJSON, decode.Protobuf: asProtobuf} {
		var got []decode.Identity
		meta, err := decode.Identities(body, enc, func(id decode.Identity) error { got = append(got, id); return nil })
		if err != nil || !slices.Equal(got, want) || meta.ResourceVersion != "42" || meta.Continue != "next" {
			t.Errorf("%v: %v, %+v, %v", enc, got, meta, err)
		}
		end := errors.New("enough")
		if _, err := decode.Identities(body, enc, func(decode.Identity) error { return end }); !errors.Is(err, end) {
			t.Errorf("%v: the caller's error becomes %v", enc, err)
		}
	}
	whole := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"5"},"spec":{"name":"no"}}]}`)
	_, err := decode.Identities(whole, decode.JSON, func(id decode.Identity) error {
		if id != (decode.Identity{"n", "p", "u", "5"}) {
			t.Errorf("of a whole object: %+v", id)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestIdentities_RefusesWhatIsMalformed(t *testing.T) {
	_, asJSON, asProtobuf, _ := identities(t)
	ignore := func(decode.Identity) error { return nil }
	for name, c := range map[string]struct {
		enc  decode.Encoding
		body []byte
	}{
		"truncated JSON":       {decode.JSON, asJSON[:len(asJSON)/2]},
		"truncated protobuf":   {decode.Protobuf, asProtobuf[:len(asProtobuf)/2]},
		"another kind":         {decode.Protobuf, bytes.Replace(asProtobuf, []byte("PartialObjectMetadataList"), []byte("PartialObjectMetadataLisp"), 1)},
		"no protobuf":          {decode.Protobuf, asJSON},
		"nothing":              {decode.Protobuf, nil},
		"nothing in JSON":      {decode.JSON, nil},
		"items twice":          {decode.JSON, []byte(`{"items":[],"items":[]}`)},
		"an item that is none": {decode.JSON, []byte(`{"items":[{"metadata":{"name":1}}]}`)},
		"a list and more":      {decode.JSON, []byte(`{"items":[]}{}`)},
	} {
		if _, err := decode.Identities(c.body, c.enc, ignore); !errors.Is(err, decode.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIdentities_LiveAsWhatWasRead: items are as small as a hostile member likes, and it is charged for what
// was read alone.
func TestIdentities_LiveAsWhatWasRead(t *testing.T) {
	body := []byte(`{"metadata":{"resourceVersion":"1"},"items":[` + strings.Repeat(`{},`, 1<<20/3) + `{}]}`)
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	n := 0
	_, err := decode.Identities(body, decode.JSON, func(decode.Identity) error {
		if n++; n == 1 || n == 1<<18 {
			goruntime.GC()
			goruntime.ReadMemStats(&after)
			if lives := int64(after.HeapAlloc) - int64(before.HeapAlloc); lives > int64(len(body)) {
				t.Errorf("at item %d, %d bytes of a response live as %d more", n, len(body), lives)
			}
		}
		return nil
	})
	if err != nil || n != 1<<20/3+1 {
		t.Errorf("%d items, %v", n, err)
	}
}

func FuzzIdentities(f *testing.F) {
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", UID: "u", ResourceVersion: "1"}}}}
	raw, err := list.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Raw: raw}
		envelope, err := unknown.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var got []decode.Identity
		_, err = decode.Identities(append([]byte("k8s\x00"), envelope...), decode.Protobuf, func(id decode.Identity) error { got = append(got, id); return nil })
		var want metav1.PartialObjectMetadataList
		if wantErr := want.Unmarshal(raw); wantErr != nil {
			return // it may be malformed in what is not read
		}
		if err != nil {
			return // groups are refused, which generated code skips and no API server sends
		}
		if len(got) != len(want.Items) {
			t.Fatalf("%d items, want %d", len(got), len(want.Items))
		}
		for n, id := range got {
			if o := &want.Items[n]; id != (decode.Identity{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), ResourceVersion: o.ResourceVersion}) {
				t.Fatalf("item %d is %+v, want %+v", n, id, o.ObjectMeta)
			}
		}
	})
}
