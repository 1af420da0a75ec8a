package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func served() APIResources {
	o := APIResources{}
	o.add(schema.GroupVersion{Version: "v1"}, []metav1.APIResource{
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, ShortNames: []string{"po"}, Categories: []string{"all"}, Verbs: metav1.Verbs{"list", "watch"}},
		{Name: "nodes", Kind: "Node", Verbs: metav1.Verbs{"list", "watch"}},
	})
	for _, version := range []string{"v2", "v1"} {
		o.add(schema.GroupVersion{Group: "acme.io", Version: version}, []metav1.APIResource{{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}})
	}
	return o
}

func TestAPIResources_AreDecodedAsTheyWere(t *testing.T) {
	want := served()
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(APIResource{}, names{})); diff != "" {
		t.Error(diff)
	}
	if again, err := got.Encode(); err != nil || again != text {
		t.Errorf("it is encoded as another text: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	text, err := served().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Decode(text)
		if err != nil {
			return
		}
		again, err := got.Encode()
		if err != nil {
			t.Fatal(err)
		}
		same, err := Decode(again)
		if err != nil || !equal(got, same) {
			t.Errorf("decoded as %v, and as %v: %v", got, same, err)
		}
	})
}
