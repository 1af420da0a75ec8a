package apiproxy

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/agent/internal/budget"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

func TestCheck_LetsThroughWhatFederatorSends(t *testing.T) {
	for _, request := range strings.Fields(`
		GET:/version GET:/api GET:/api/v1 GET:/apis GET:/apis/apps GET:/apis/apps/v1
		GET:/api/v1/pods GET:/api/v1/pods?watch=true GET:/api/v1/namespaces/kube-system GET:/api/v1/namespaces/a/pods GET:/api/v1/namespaces/a/pods/b
		GET:/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node GET:/apis/apps/v1/namespaces/a/deployments
		POST:/api/v1/namespaces/a/configmaps POST:/api/v1/namespaces POST:/apis/apps/v1/namespaces/a/deployments?dryRun=All
		POST:/apis/authorization.k8s.io/v1/subjectaccessreviews
		PATCH:/api/v1/namespaces/a/configmaps/b PATCH:/api/v1/namespaces/a DELETE:/apis/apps/v1/namespaces/a/deployments/b DELETE:/api/v1/nodes/a
	`) {
		method, path, _ := strings.Cut(request, ":")
		if why := check(httptest.NewRequest(method, path, http.NoBody)); why != "" {
			t.Errorf("%s %s: %s", method, path, why)
		}
	}
}

func TestCheck_RefusesEverythingElse(t *testing.T) {
	for _, request := range strings.Fields(`
		GET:/ GET:/healthz GET:/metrics GET:/openapi/v2 GET:/logs GET:/debug/pprof GET:/version/openid POST:/version PUT:/api HEAD:/api/v1/pods OPTIONS:/api/v1/pods
		GET:/api/v1/namespaces/a/pods/b/log GET:/api/v1/namespaces/a/pods/b/exec POST:/api/v1/namespaces/a/pods/b/exec GET:/api/v1/namespaces/a/pods/b/attach
		GET:/api/v1/namespaces/a/pods/b/portforward POST:/api/v1/namespaces/a/pods/b/eviction POST:/api/v1/namespaces/a/pods/b/binding POST:/api/v1/namespaces/a/bindings
		POST:/api/v1/namespaces/a/serviceaccounts/b/token GET:/api/v1/nodes/a/proxy GET:/api/v1/nodes/a/proxy/metrics GET:/api/v1/namespaces/a/services/b/proxy/x
		PATCH:/apis/apps/v1/namespaces/a/deployments/b/status GET:/apis/apps/v1/namespaces/a/deployments/b/scale PUT:/api/v1/namespaces/a/finalize PATCH:/api/v1/namespaces/a/status
		GET:/api/v1/watch/pods GET:/api/v1/proxy/nodes/a GET:/apis/apps/v1/watch/deployments
		PUT:/api/v1/namespaces/a/configmaps/b POST:/api/v1/namespaces/a/configmaps/b DELETE:/api/v1/namespaces/a/configmaps DELETE:/api/v1/nodes PATCH:/api/v1/nodes
		POST:/apis/authentication.k8s.io/v1/tokenreviews POST:/apis/authentication.k8s.io/v1/selfsubjectreviews POST:/apis/authorization.k8s.io/v1/selfsubjectaccessreviews
		POST:/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews GET:/apis/authorization.k8s.io/v1/subjectaccessreviews
		GET://api/v1/pods GET:/api//v1/pods GET:/api/v1/pods/ GET:/api/v1/../../metrics GET:/api/v1/./pods GET:/api/v1/namespaces/a%2fb/pods GET:/api/v1/namespaces/a%5cb/pods GET:/api/v1/namespaces/%2e%2e/pods
	`) {
		method, path, _ := strings.Cut(request, ":")
		r := httptest.NewRequest(method, "http://agent"+path, http.NoBody)
		if why := check(r); why == "" {
			t.Errorf("%s %s (%v) is let through", method, path, r.URL.Path)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"impersonation":       func(r *http.Request) { r.Header.Set("Impersonate-User", "a") },
		"odd impersonation":   func(r *http.Request) { r.Header["impersonate-group"] = []string{"a"} },
		"upgrade":             func(r *http.Request) { r.Header.Set("Upgrade", "SPDY/3.1") },
		"connection":          func(r *http.Request) { r.Header.Set("Connection", "Upgrade") },
		"a tunnel":            func(r *http.Request) { r.Method = http.MethodConnect },
		"a path without end":  func(r *http.Request) { r.URL.Path += strings.Repeat("a", maxPath) },
		"a query without end": func(r *http.Request) { r.RequestURI += strings.Repeat("a", maxURI) },
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
		change(r)
		if why := check(r); why == "" {
			t.Errorf("%s is let through", name)
		}
	}
}

// FuzzCheck: what is let through has a path that cannot be read in two ways.
func FuzzCheck(f *testing.F) {
	f.Add("GET", "/api/v1/namespaces/a/pods/b")
	f.Add("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
	f.Fuzz(func(t *testing.T, method, path string) {
		r := &http.Request{Method: method, Header: http.Header{}}
		var err error
		if r.URL, err = r.URL.Parse("http://agent"); err != nil {
			t.Skip()
		}
		if r.URL, err = r.URL.Parse(path); err != nil || !strings.HasPrefix(r.URL.Path, "/") {
			t.Skip()
		}
		if check(r) != "" {
			return
		}
		parts := strings.Split(r.URL.Path[1:], "/")
		for _, p := range parts {
			if p == "" || p == "." || p == ".." {
				t.Errorf("%q has segment %q", r.URL.Path, p)
			}
		}
		if n := len(parts); n > 7 || method != "GET" && method != "POST" && method != "PATCH" && method != "DELETE" {
			t.Errorf("%s %q is let through", method, r.URL.Path)
		}
	})
}

// newProxy returns a proxy to a server.
func newProxy(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	api := httptest.NewUnstartedServer(h)
	api.EnableHTTP2 = true
	api.StartTLS()
	t.Cleanup(api.Close)
	p, err := New(&rest.Config{
		Host: api.URL, BearerToken: "own",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})},
	}, budget.New(0, 0), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s := httptest.NewUnstartedServer(p)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestProxy_PassesNoCredentials(t *testing.T) {
	s := newProxy(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %v", r.Header.Get("Authorization"), r.URL, r.Header)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/pods?limit=3&labelSelector=a%3Db", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Authorization": "Bearer other", "Cookie": "a=b", "X-Remote-User": "a", "X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4", "Accept": "application/json", "User-Agent": "federator/0.1", "Audit-ID": "5f0b", "traceparent": "00-0a-0b-01", "Tracestate": "a=b"} {
		req.Header.Set(name, v)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Bearer own /api/v1/pods?limit=3&labelSelector=a%3Db map[Accept:[application/json] Audit-Id:[5f0b] Authorization:[Bearer own] Traceparent:[00-0a-0b-01] User-Agent:[federator/0.1]]"; string(body) != want {
		t.Errorf("%s, want\n%s", body, want)
	}
}

// TestProxy_DoesNotHoldBack what a watch has sent, however little.
func TestProxy_DoesNotHoldBack(t *testing.T) {
	more := make(chan string)
	s := newProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		for text := range more {
			fmt.Fprintln(w, text)
			w.(http.Flusher).Flush()
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/pods?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	go func() { more <- "first" }()
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"first", "second"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q %v, want %q", lines.Text(), lines.Err(), want)
		}
		if want == "first" {
			more <- "second"
		}
	}
	close(more)
}

func TestProxy_SaysThatTheServerIsAway(t *testing.T) {
	p, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, budget.New(0, 0), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody))
	var status metav1.Status
	if err := yaml.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusServiceUnavailable || status.Kind != "Status" {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
	if _, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, budget.New(0, 0), nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("plain HTTP is accepted")
	}
}

// TestProxy_ShedsWhatIsTooMuch, and says so; what is short goes before lists.
func TestProxy_ShedsWhatIsTooMuch(t *testing.T) {
	for path, want := range map[string]int{
		"GET /version": weightNow, "GET /apis": weightNow, "GET /api/v1": weightNow, "GET /apis/apps/v1": weightNow, "PATCH /api/v1/namespaces/a/pods/b": weightNow,
		"GET /api/v1/secrets": weightRights, "GET /api/v1/namespaces/a/secrets": weightRights, "GET /apis/rbac.authorization.k8s.io/v1/roles": weightRights,
		"GET /api/v1/pods": weightObject, "GET /api/v1/namespaces/events": weightObject, "GET /apis/apps/v1/namespaces/a/deployments/b": weightObject,
		"GET /api/v1/events": weightEvent, "GET /apis/events.k8s.io/v1/namespaces/a/events": weightEvent,
	} {
		method, path, _ := strings.Cut(path, " ")
		if got := weight(httptest.NewRequest(method, path, http.NoBody)); got != want {
			t.Errorf("%s %s has weight %d, want %d", method, path, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(0.01, 0)
		p, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, b, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, want := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody))
			if w.Code != want || want == http.StatusTooManyRequests && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "protects its API server")) {
				t.Errorf("%d %v %s, want %d", w.Code, w.Header(), w.Body, want)
			}
		}
		time.Sleep(2 * time.Minute) // of virtual time: what was scheduled is over
	})
}
