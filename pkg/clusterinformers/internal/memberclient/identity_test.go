package memberclient

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// bounded bounds the bodies of responses as the transport of members does.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &limitedBody{ReadCloser: resp.Body, done: func() {}, left: maxBody}
	}
	return resp, err
}

// TestClient_VersionAtIsMalformed: an answer that says nothing is no failure of the connection, after which it
// would be asked for again.
func TestClient_VersionAtIsMalformed(t *testing.T) {
	for what, answer := range map[string]string{
		"large":   `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"` + strings.Repeat("x", 17<<20) + `"}}]}`,
		"no text": `{"metadata":{"resourceVersion":7}}`,
		"no JSON": `ok`,
	} {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer)
		})
		client := s.Client()
		client.Transport = bounded{client.Transport}
		_, _, err := New(&rest.Config{Host: s.URL}, client).VersionAt(t.Context(), corev1.SchemeGroupVersion.WithResource("pods"), "shop", "a", "7")
		if _, malformed := errors.AsType[*MalformedError](err); !malformed {
			t.Errorf("%s: %.200v", what, err)
		}
	}
}

// TestClient_VersionAt: of the object that was asked for, whatever its name and whatever else the server
// lists; and of the resourceVersion that the server says.
func TestClient_VersionAt(t *testing.T) {
	const name = `a,b=c\d`
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		selector, err := fields.ParseSelector(q.Get("fieldSelector"))
		if got, _ := selector.RequiresExactMatch("metadata.name"); err != nil || got != name || q.Get("resourceVersionMatch") != "Exact" || q.Get("resourceVersion") != "7" {
			t.Errorf("asked for %s: %v", r.URL, err)
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/namespaces/there/configmaps" {
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"other","resourceVersion":"6"}},{"metadata":{"name":"a,b=c\\d","resourceVersion":"5"}}]}`)
		} else {
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"other","resourceVersion":"6"}}]}`)
		}
	})
	c := New(&rest.Config{Host: s.URL}, s.Client())
	for namespace, want := range map[string][2]string{"there": {"5", "7"}, "": {"", "9"}} {
		version, answered, err := c.VersionAt(t.Context(), corev1.SchemeGroupVersion.WithResource("configmaps"), namespace, name, "7")
		if err != nil || version != want[0] || answered != want[1] {
			t.Errorf("in namespace %q: %q at %q, %v; want %q", namespace, version, answered, err, want)
		}
	}
}

// TestClient_AsksForCustomKinds: most groups are of no kind that client-go knows.
func TestClient_AsksForCustomKinds(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","resourceVersion":%q}}]}`, r.URL.Query().Get("resourceVersion")+r.URL.Query().Get("limit"))
	})
	c, widgets := New(&rest.Config{Host: s.URL}, s.Client()), schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	if version, answered, err := c.VersionAt(t.Context(), widgets, "shop", "a", "7"); err != nil || version != "7" || answered != "9" {
		t.Errorf("what it had: %q at %q, %v", version, answered, err)
	}
	if newest, err := c.NewestResourceVersion(t.Context(), widgets); err != nil || newest != "9" {
		t.Errorf("the newest: %q, %v", newest, err)
	}
}
