package ui

import (
	"net/http"
	"net/http/httptest"
	"path"
	"testing"

	"k8s.io/client-go/rest"
)

// TestProxy_OnlyFilesNeedNoSession: a server may be behind something that cleans paths.
func TestProxy_OnlyFilesNeedNoSession(t *testing.T) {
	var asked []string
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, path.Clean(r.URL.Path))
	}))
	defer behind.Close()
	p, err := newProxy(&rest.Config{Host: behind.URL, BearerToken: "secret"}, "v1", "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, at := range []string{"/ui/../query/v1/whoami", "/ui/%2e%2e/query/v1/whoami", "/ui/x%2f..%2f..%2fquery/v1/whoami", "/ui//session", "/ui/./session", "/ui/x/../session"} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1"+at, nil)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || asked != nil {
			t.Errorf("%s: %d, the server was asked %q with the user's credentials", at, w.Code, asked)
		}
		asked = nil
	}
	for _, at := range []string{"/ui/", "/ui/assets/x.js"} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1"+at, nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", at, w.Code)
		}
	}
}
