package resources_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/warning"

	"federator.dev/federator/pkg/aggregate"
)

// recorder keeps the warnings of a request.
type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

func TestVersions_CustomKindsAtDifferentVersionsAreOneList(t *testing.T) {
	f := newFleet(t, settings{})
	for member, version := range map[string]string{"fleet/a": "v1", "fleet/b": "v1beta1", "fleet/c": "v1"} {
		f.join(member)
		s, err := f.index.OpenScope(member, widgets, "shop.example/"+version)
		ok(t, err)
		s.Upsert(s.Item(&aggregate.Record{
			Namespace: "shop", Name: "w-" + version, UID: "u" + member, ResourceVersion: "7",
			Body: fmt.Appendf(nil, `{"apiVersion":"shop.example/%s","kind":"Widget","metadata":{"name":"w-%s","namespace":"shop"},"spec":{"size":1}}`, version, version),
		}))
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		_, err = s.Commit()
		ok(t, err)
	}
	path := "/fleet/apis/shop.example/v1/widgets"
	warned := &recorder{}
	ctx := warning.WithWarningRecorder(t.Context(), warned)
	w := httptest.NewRecorder()
	f.serve(w, f.request(ctx, path, nil, ""), all)
	a := f.ask(all, path, nil, "")
	if a.code != http.StatusOK || len(a.list.Items) != 3 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	var versions []string
	for _, item := range a.list.Items {
		versions = append(versions, item["apiVersion"].(string))
	}
	slices.Sort(versions)
	if want := []string{"shop.example/v1", "shop.example/v1", "shop.example/v1beta1"}; !slices.Equal(versions, want) {
		t.Errorf("items at %q, want %q", versions, want)
	}
	if w := strings.Join(warned.texts, "; "); !strings.Contains(w, "fleet/b") || !strings.Contains(w, "v1beta1") || strings.Contains(w, "fleet/a") {
		t.Errorf("the warning is %q", w)
	}
	w = httptest.NewRecorder()
	f.serve(w, f.request(ctx, path, url.Values{"watch": {"1"}, "timeoutSeconds": {"1"}}, ""), all)
	if strings.Count(w.Body.String(), `"ADDED"`) != 3 || strings.Contains(w.Body.String(), `"ERROR"`) {
		t.Errorf("a watch has %s", w.Body)
	}
	// An object that is requested alone is at the version that was requested, or
	// an error that says why not.
	if a := f.ask(all, path[:len("/fleet/apis/shop.example/v1")]+"/namespaces/shop/widgets/w-v1beta1", nil, ""); a.code != http.StatusNotAcceptable {
		t.Errorf("%d %s", a.code, a.body)
	}
}
