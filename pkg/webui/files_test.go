package webui_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestFiles_Encodings(t *testing.T) {
	b := start(t, func(o *setup) { o.local = true }).browser()
	for _, c := range []struct {
		path, accept string
		body, coding string
		kind, cache  string
	}{
		{"/ui/assets/app-1.js", "gzip, br", "app, br", "br", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/ui/assets/app-1.js", "gzip, br;q=0", "app, gzip", "gzip", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/ui/assets/app-1.js", "GZIP;q=0.5", "app, gzip", "gzip", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/ui/assets/app-1.js", "deflate, *;q=0", "let a", "", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/ui/assets/app-1.js", "br;q=many", "let a", "", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/ui/assets/app-1.css", "br", "a{}", "", "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		{"/ui/favicon.svg", "", "<svg/>", "", "image/svg+xml", "no-cache"},
		{"/ui", "", "<!doctype html><title>federator</title>", "", "text/html; charset=utf-8", "no-cache"},
		{"/ui/", "br, gzip", "index, gzip", "gzip", "text/html; charset=utf-8", "no-cache"},
		{"/ui/violations/replicas?member=a", "", "<!doctype html><title>federator</title>", "", "text/html; charset=utf-8", "no-cache"},
		{"/ui/assets/app-1.js.br", "br", "", "", "application/json", "no-store"}, // is none of its own
	} {
		var header []string
		if c.accept != "" {
			header = append(header, "Accept-Encoding: "+c.accept)
		}
		answer, body := b.ask("GET", c.path, "", header...)
		h := answer.Header
		if c.cache == "no-store" {
			wantStatus(t, c.path, answer, body, http.StatusNotFound, "nothing is served here")
			continue
		}
		if answer.StatusCode != http.StatusOK || body != c.body || h.Get("Content-Encoding") != c.coding || h.Get("Content-Type") != c.kind || h.Get("Cache-Control") != c.cache || h.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s, %q: %d %q %v", c.path, c.accept, answer.StatusCode, body, h)
		}
		again, body := b.ask("GET", c.path, "", append(header, `If-None-Match: "x", W/`+h.Get("ETag"))...)
		if again.StatusCode != http.StatusNotModified || body != "" || again.Header.Get("ETag") != h.Get("ETag") || h.Get("ETag") == "" || again.Header.Get("Cache-Control") != c.cache {
			t.Errorf("%s, %q: again: %d %q %v", c.path, c.accept, again.StatusCode, body, again.Header)
		}
		head, body := b.ask("HEAD", c.path, "", header...)
		if head.StatusCode != http.StatusOK || body != "" || head.Header.Get("Content-Length") != h.Get("Content-Length") {
			t.Errorf("%s, %q: HEAD: %d %q %v", c.path, c.accept, head.StatusCode, body, head.Header)
		}
	}
	one, _ := b.ask("GET", "/ui/assets/app-1.js", "", "Accept-Encoding: br")
	other, _ := b.ask("GET", "/ui/assets/app-1.js", "", "Accept-Encoding: identity")
	if one.Header.Get("ETag") == other.Header.Get("ETag") {
		t.Error("two representations have one strong ETag")
	}
}

func TestFiles_RefuseWhatIsNone(t *testing.T) {
	b := start(t, func(o *setup) { o.local = true }).browser()
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/ui/assets/none.js", 404},
		{"GET", "/ui/assets/", 404},
		{"GET", "/ui/session/x", 404},
		{"GET", "/ui/oidc/login", 404},
		{"GET", "/ui/oidc/x", 404},
		{"GET", "/ui/assets/../index.html", 400},
		{"GET", "/ui/%2e%2e/go.mod", 400},
		{"GET", "/ui/..%2fgo.mod", 400},
		{"GET", "/ui/assets//app-1.js", 400},
		{"GET", `/ui/..%5cgo.mod`, 400},
		{"POST", "/ui/", 405},
		{"DELETE", "/ui/assets/app-1.js", 405},
		{"PUT", "/ui/session", 405},
		{"OPTIONS", "/ui/", 405},
		{"GET", "/uix", 401},
		{"GET", "/ui/relay/stops", 401},
		{"GET", "/", 401},
	} {
		answer, body := b.ask(c.method, c.path, "")
		wantStatus(t, c.method+" "+c.path, answer, body, c.code, "")
		if strings.HasPrefix(c.path, "/ui/") {
			wantHeaders(t, c.path, answer)
		}
	}
	answer, _ := b.ask("GET", "/", "", "Accept: text/html,*/*")
	if answer.StatusCode != http.StatusFound || answer.Header.Get("Location") != "/ui/" {
		t.Errorf("navigation to /: %d %v", answer.StatusCode, answer.Header)
	}
	answer, body := b.ask("GET", "/", "", "Accept: text/html,*/*", "Authorization: Bearer x")
	wantStatus(t, "a client at /", answer, body, http.StatusUnauthorized, "")
}

// wantHeaders checks the headers of all responses at /ui.
func wantHeaders(t *testing.T, what string, answer *http.Response) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types federator",
		"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := answer.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
	if p := answer.Header.Get("Permissions-Policy"); !strings.Contains(p, "camera=()") || strings.Contains(p, "=*") || strings.Contains(p, "bluetooth") {
		t.Errorf("%s: Permissions-Policy %q", what, p)
	}
}

func TestHeaders_AreOfEveryAnswerAtUI(t *testing.T) {
	b := start(t, func(o *setup) { o.local = true }).browser()
	for _, path := range []string{"/ui", "/ui/", "/ui/assets/app-1.js", "/ui/assets/none", "/ui/session", "/ui/relay/stops", "/ui/../x"} {
		answer, _ := b.ask("GET", path, "")
		wantHeaders(t, path, answer)
	}
	answer, _ := b.ask("GET", "/healthz", "")
	if answer.Header.Get("Content-Security-Policy") != "" {
		t.Error("the API has the headers of pages")
	}
	if len(answer.Header.Values("Access-Control-Allow-Origin")) > 0 {
		t.Error("other sites may read answers")
	}
}
