package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
)

// TestRedact_NoValueIsKept of Secrets and ConfigMaps in either encoding, alone, in a
// list and in a watch.
func TestRedact_NoValueIsKept(t *testing.T) {
	const planted = "planted-value"
	meta := metav1.ObjectMeta{
		Name: "s", Namespace: "n", ResourceVersion: "7",
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"data":{"key":"` + planted + `"}}`},
	}
	for _, c := range []struct {
		kind      string
		obj, list runtime.Object
		keys      []string
	}{
		{"Secret", &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte(planted)}, StringData: map[string]string{"text": planted}}, &corev1.SecretList{}, []string{"key", "text"}},
		{"ConfigMap", &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": planted}, BinaryData: map[string][]byte{"binary": []byte(planted)}}, &corev1.ConfigMapList{}, []string{"key", "binary"}},
	} {
		gvk := schema.GroupVersionKind{Version: "v1", Kind: c.kind}
		listKind := schema.GroupVersionKind{Version: "v1", Kind: c.kind + "List"}
		switch l := c.list.(type) {
		case *corev1.SecretList:
			l.Items = []corev1.Secret{*c.obj.(*corev1.Secret)}
		case *corev1.ConfigMapList:
			l.Items = []corev1.ConfigMap{*c.obj.(*corev1.ConfigMap)}
		}
		for _, enc := range []Encoding{JSON, Protobuf} {
			t.Run(c.kind+" "+enc.String(), func(t *testing.T) {
				d := mustNew(t, gvk, enc, Rules{Redact: true})
				checked := 0
				check := func(rec *aggregate.Record) {
					checked++
					for _, secret := range []string{planted, base64.StdEncoding.EncodeToString([]byte(planted))} {
						if bytes.Contains(rec.Body, []byte(secret)) {
							t.Errorf("%s is kept: %s", secret, rec.Body)
						}
					}
					for _, key := range append(slices.Clone(c.keys), redactedKey) {
						if !bytes.Contains(rec.Body, []byte(`"`+key+`":"`)) {
							t.Errorf("key %s is lost: %s", key, rec.Body)
						}
					}
				}
				encode := func(gvk schema.GroupVersionKind, obj runtime.Object) []byte {
					if enc == Protobuf {
						return encodeProtobuf(t, gvk, obj)
					}
					obj.GetObjectKind().SetGroupVersionKind(gvk)
					text, err := json.Marshal(obj)
					if err != nil {
						t.Fatal(err)
					}
					return text
				}
				var rec aggregate.Record
				if err := d.Object(encode(gvk, c.obj), &rec); err != nil {
					t.Fatal(err)
				}
				check(&rec)
				if _, err := d.List(encode(listKind, c.list), func(rec *aggregate.Record, unfit error) error { check(rec); return unfit }); err != nil {
					t.Fatal(err)
				}
				var text []byte
				if enc == Protobuf {
					text = slices.Concat(frame(t, watch.Added, encode(gvk, c.obj)), frame(t, watch.Modified, encode(gvk, c.obj)))
				} else {
					text = slices.Concat([]byte(`{"type":"ADDED","object":`), encode(gvk, c.obj), []byte("}\n"), []byte("{\"object\":"), encode(gvk, c.obj), []byte(`,"type":"MODIFIED"}`+"\n"))
				}
				events, _ := readEvents(d, bytes.NewReader(text), len(text)) //nolint:errcheck // it ends with EOF
				for i := range events {
					check(&events[i].Record)
				}
				if checked != 4 {
					t.Errorf("%d objects were checked", checked)
				}
			})
		}
	}
}
