package git

import (
	"crypto/subtle"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"sync"
)

// HTTPS serves the repositories below a directory.
type HTTPS struct {
	URL string // of the directory
	CA  []byte // PEM

	server *httptest.Server

	mu       sync.Mutex
	user     string
	password string
	token    string
	hook     func(http.ResponseWriter, *http.Request) bool
	requests []string
}

// ServeHTTPS serves what is below a directory with git http-backend.
func ServeHTTPS(root string) (*HTTPS, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	h := &HTTPS{}
	backend := &cgi.Handler{
		Path: bin, Args: []string{"http-backend"}, Dir: root,
		Logger: log.New(io.Discard, "", 0), Stderr: io.Discard, // clients that end early are meant
		Env: append(environ(), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1",
			// The repositories may belong to somebody else, as in containers.
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"),
	}
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hook, allowed := h.authorize(r)
		switch {
		case hook != nil && hook(w, r):
		case !allowed:
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			// A careless server says what it got.
			http.Error(w, "refused: "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		default:
			backend.ServeHTTP(w, r)
		}
	}))
	h.server.EnableHTTP2 = true
	h.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.server.StartTLS()
	h.URL = h.server.URL
	h.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	return h, nil
}

// authorize records a request and reports whether it is authorized.
func (h *HTTPS) authorize(r *http.Request) (func(http.ResponseWriter, *http.Request) bool, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	same := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	switch {
	case h.token != "":
		return h.hook, same(r.Header.Get("Authorization"), "Bearer "+h.token)
	case h.user != "":
		user, password, _ := r.BasicAuth()
		return h.hook, same(user, h.user) && same(password, h.password)
	}
	return h.hook, true
}

// RequireToken lets only requests with a bearer token pass from now on.
func (h *HTTPS) RequireToken(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token, h.user, h.password = token, "", ""
}

// RequireBasic lets only requests with a user and password pass from now on.
func (h *HTTPS) RequireBasic(user, password string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token, h.user, h.password = "", user, password
}

// Intercept calls a function first with each request; true means that it answered.
func (h *HTTPS) Intercept(f func(http.ResponseWriter, *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = f
}

// Requests returns method and path of all requests so far.
func (h *HTTPS) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.requests...)
}

// Close ends the server and waits for it.
func (h *HTTPS) Close() { h.server.Close() }
