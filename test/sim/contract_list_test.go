package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// testMetadata lists the metadata of a page, at a resourceVersion, in both encodings.
func testMetadata(t *testing.T, s *subject) {
	want := s.create(t, "a", map[string]string{"x": "y"})
	last := s.create(t, "b", nil)
	path := "/api/v1/namespaces/" + s.ns + "/configmaps?fieldSelector=metadata.name!=kube-root-ca.crt&limit=1&resourceVersionMatch=Exact&resourceVersion=" + last.ResourceVersion
	for media, decode := range map[string]func([]byte, *metav1.PartialObjectMetadataList) error{
		runtime.ContentTypeJSON: func(b []byte, list *metav1.PartialObjectMetadataList) error { return json.Unmarshal(b, list) },
		runtime.ContentTypeProtobuf: func(b []byte, list *metav1.PartialObjectMetadataList) error {
			var u runtime.Unknown
			if err := u.Unmarshal(b[4:]); err != nil {
				return err
			}
			if u.Kind != "PartialObjectMetadataList" || u.APIVersion != "meta.k8s.io/v1" {
				return fmt.Errorf("it is a %s of %s", u.Kind, u.APIVersion)
			}
			return list.Unmarshal(u.Raw)
		},
	} {
		code, contentType, body := s.get(t, s.config, path, media+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
		var list metav1.PartialObjectMetadataList
		if err := decode(body, &list); code != http.StatusOK || contentType != media || err != nil {
			t.Fatalf("%d, %s, %v", code, contentType, err)
		}
		if list.ResourceVersion != last.ResourceVersion || list.Continue == "" || len(list.Items) != 1 {
			t.Fatalf("%s: %+v", media, list)
		}
		if got := list.Items[0]; got.Name != "a" || got.Namespace != s.ns || got.UID != want.UID || got.ResourceVersion != want.ResourceVersion || got.Labels["x"] != "y" {
			t.Errorf("%s: %+v", media, got)
		}
	}
}
