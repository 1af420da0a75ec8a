package sim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// testConditional holds an aggregated discovery to its ETag.
func testConditional(t *testing.T, s *subject, path, accept string) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	get := func(tag string) (code int, etag string, body []byte) {
		r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.config.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Get("ETag"), body
	}
	code, etag, body := get("")
	if code != http.StatusOK || !strings.HasPrefix(etag, `"`) || len(body) == 0 {
		t.Errorf("%s: %d with ETag %s and %d bytes", path, code, etag, len(body))
	}
	if code, again, body := get(etag); code != http.StatusNotModified || again != etag || len(body) != 0 {
		t.Errorf("%s, not changed: %d with ETag %s and %d bytes", path, code, again, len(body))
	}
	if code, again, body := get(`"another"`); code != http.StatusOK || again != etag || len(body) == 0 {
		t.Errorf("%s, changed: %d with ETag %s and %d bytes", path, code, again, len(body))
	}
}
