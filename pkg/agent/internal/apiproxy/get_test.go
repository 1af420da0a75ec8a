package apiproxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// getZstd asks for a response in zstd.
func getZstd(t *testing.T, s *httptest.Server, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "zstd")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func decoded(t *testing.T, r io.Reader) io.Reader {
	t.Helper()
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// TestProxy_Compresses what has a body, as it is, whatever its status.
func TestProxy_Compresses(t *testing.T) {
	text := strings.Repeat("a list of pods, ", 1000)
	s := newProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "" {
			t.Errorf("the API server is asked for %s", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Etag", `"5"`)
		switch r.URL.Path {
		case "/api/v1/pods":
			fmt.Fprint(w, text)
		case "/api/v1/nodes":
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, "expired")
		case "/api/v1/secrets":
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "not ours")
		case "/api":
			w.WriteHeader(http.StatusNotModified)
		}
	})
	for _, want := range []struct {
		path, encoding, body string
		code                 int
	}{
		{"/api/v1/pods", "zstd", text, http.StatusOK},
		{"/api/v1/nodes", "zstd", "expired", http.StatusGone},
		{"/api/v1/nodes?watch=true", "zstd", "expired", http.StatusGone},
		{"/api/v1/secrets", "gzip", "not ours", http.StatusOK},
		{"/api", "", "", http.StatusNotModified},
	} {
		resp := getZstd(t, s, want.path)
		if resp.StatusCode != want.code || resp.Header.Get("Content-Encoding") != want.encoding || resp.Header.Get("Etag") != `"5"` {
			t.Errorf("%s: %s %v", want.path, resp.Status, resp.Header)
		}
		from := io.Reader(resp.Body)
		if want.encoding == "zstd" {
			from = decoded(t, from)
		}
		if body, err := io.ReadAll(from); err != nil || string(body) != want.body {
			t.Errorf("%s: %d bytes, %v", want.path, len(body), err)
		}
	}
}

// TestProxy_CompressedWatchDoesNotHoldBack, nor does it end well where the API server was cut off.
func TestProxy_CompressedWatchDoesNotHoldBack(t *testing.T) {
	more := make(chan string)
	s := newProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for text := range more {
			fmt.Fprintln(w, text)
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	})
	resp := getZstd(t, s, "/api/v1/pods?watch=true")
	lines := bufio.NewScanner(decoded(t, resp.Body))
	for _, want := range []string{"first", "second"} {
		more <- want
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("%q %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	close(more)
	if lines.Scan() || lines.Err() == nil {
		t.Error("the watch has ended as if it were whole")
	}
}
