package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/cli/queryclient"
)

// proxy passes requests of one browser to a server, with the credentials of a kubeconfig.
type proxy struct {
	host      string // that the browser must name: another one is DNS that was rebound
	version   string
	upstream  *httputil.ReverseProxy
	transport http.RoundTripper
	cookie    string // its name
	ended     chan struct{}

	mu      sync.Mutex
	code    string // "" once it was used
	session string // the cookie's value; "" before the code was used, and after a log-out
	closed  bool   // ended is
}

func newProxy(config *rest.Config, version, host string) (*proxy, error) {
	client, err := queryclient.New(config, version)
	if err != nil {
		return nil, err
	}
	root, err := url.Parse(client.Root)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(host, ":")
	p := &proxy{host: host, version: version, transport: transport, cookie: "federator-ui-" + port, ended: make(chan struct{}), code: rand.Text()}
	p.upstream = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, // streams
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, root) },
		ModifyResponse: func(r *http.Response) error { r.Header.Del("Set-Cookie"); return nil },
		ErrorHandler:   func(w http.ResponseWriter, _ *http.Request, err error) { unreachable(w, root.Host, err) },
		ErrorLog:       log.New(io.Discard, "", 0), // of clients that go away
	}
	return p, nil
}

// address is what the browser opens. Fragments are not sent to servers, or kept in their logs.
func (p *proxy) address() string { return "http://" + p.host + "/ui/#code=" + p.code }

// rewrite makes a request that of the kubeconfig's user. That it comes from the page is checked
// here; its origin is none that the server knows.
func rewrite(r *httputil.ProxyRequest, root *url.URL) {
	r.SetURL(root)
	r.Out.Host = root.Host
	for _, name := range []string{"Cookie", "Authorization", "Origin", "Referer"} {
		r.Out.Header.Del(name)
	}
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			r.Out.Header.Del(name)
		}
	}
}

func unreachable(w http.ResponseWriter, host string, err error) {
	status := apierrors.NewServiceUnavailable(fmt.Sprintf("federator at %s cannot be reached: %v", host, err)).Status()
	writeStatus(w, status)
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host != p.host:
		http.Error(w, "this address is "+p.host, http.StatusMisdirectedRequest)
	case r.URL.Path == "/":
		http.Redirect(w, r, "/ui/", http.StatusFound)
	case isFile(r):
		p.upstream.ServeHTTP(w, r)
	case r.Header.Get("Sec-Fetch-Site") != "same-origin":
		writeStatus(w, apierrors.NewUnauthorized("only the page that this proxy serves may ask").Status())
	case r.URL.Path == "/ui/session" && (r.Method != http.MethodGet || !p.proved(r)):
		p.serveSession(w, r)
	case !p.proved(r):
		writeStatus(w, apierrors.NewUnauthorized("open the address that federator ui has printed").Status())
	default:
		p.upstream.ServeHTTP(w, r)
	}
}

// isFile reports whether a request is for a file of the web UI, which needs no session. A path that
// leads out of /ui/ where something on the way to the server cleans it is none.
func isFile(r *http.Request) bool {
	if path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") {
		return false
	}
	below, ok := strings.CutPrefix(r.URL.Path, "/ui/")
	first, _, _ := strings.Cut(below, "/")
	return ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) && first != "session" && first != "relay" && first != "oidc"
}

// proved reports whether a request is of the browser that had the code.
func (p *proxy) proved(r *http.Request) bool {
	given, err := r.Cookie(p.cookie)
	p.mu.Lock()
	defer p.mu.Unlock()
	return err == nil && p.session != "" && same(given.Value, p.session)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// serveSession answers a browser that has not proved itself, logs it in by the code, or out.
func (p *proxy) serveSession(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodPost:
		p.logIn(w, r)
	case http.MethodDelete:
		p.logOut(w, r)
	case http.MethodGet:
		writeJSON(w, http.StatusOK, map[string]any{
			"user": "", "groups": []string{}, "methods": []string{"proxy"}, "canWrite": false, "cannotWriteWhy": "", "expires": "", "version": p.version, "hub": false,
		})
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		writeStatus(w, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: "a session is asked for, made or ended"})
	}
}

func (p *proxy) logIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Code string `json:"code"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
		writeStatus(w, apierrors.NewBadRequest("this is no code: "+err.Error()).Status())
		return
	}
	p.mu.Lock()
	ok := p.code != "" && same(body.Code, p.code)
	if ok {
		p.code, p.session = "", rand.Text()
	}
	session := p.session
	p.mu.Unlock()
	if !ok {
		writeStatus(w, apierrors.NewUnauthorized("the code is wrong, or was used before: run federator ui again").Status())
		return
	}
	http.SetCookie(w, &http.Cookie{Name: p.cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	// The server says who that is.
	who := r.Clone(r.Context())
	who.Method, who.Body, who.ContentLength = http.MethodGet, http.NoBody, 0
	who.Header.Del("Content-Type")
	p.upstream.ServeHTTP(w, who)
}

func (p *proxy) logOut(w http.ResponseWriter, r *http.Request) {
	if !p.proved(r) {
		writeStatus(w, apierrors.NewUnauthorized("there is no session").Status())
		return
	}
	http.SetCookie(w, &http.Cookie{Name: p.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: -1})
	w.WriteHeader(http.StatusNoContent)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = ""
	if !p.closed {
		p.closed = true
		close(p.ended)
	}
}

func (p *proxy) close() { utilnet.CloseIdleConnectionsFor(p.transport) }

func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	writeJSON(w, int(status.Code), status)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the browser may be gone
}
