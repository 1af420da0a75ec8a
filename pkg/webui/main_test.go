package webui_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/webui"
	"federator.dev/federator/test/issuer"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/queryserver"
)

const (
	clientID     = "federator-ui"
	clientSecret = "hush"
	redirectURL  = "https://federator.example/ui/oidc/callback"
	userPrefix   = "oidc:"
)

// One issuer and one hub, which trusts it, for all tests of the package.
var (
	oidcIssuer *issuer.Issuer
	shared     kube.Shared
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	klog.StopFlushDaemon()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what the machinery says of refused callers
	dir, err := os.MkdirTemp("", "webui")
	if err == nil {
		oidcIssuer, err = issuer.Start(context.Background(), dir, issuer.Client{ID: clientID, Secret: clientSecret, RedirectURLs: []string{redirectURL}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared = kube.Shared{
		Options: kube.Options{APIServerArgs: []string{
			"--oidc-issuer-url=" + oidcIssuer.URL, "--oidc-client-id=" + clientID, "--oidc-ca-file=" + oidcIssuer.CAFile,
			"--oidc-username-claim=sub", "--oidc-username-prefix=" + userPrefix,
		}},
		Prepare: func(ctx context.Context) error {
			if err := shared.Fleet.Hub.InstallCRDs(ctx, "../../charts/federator/crds"); err != nil {
				return err
			}
			return shared.Fleet.Hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n"))
		},
	}
	return shared.Main(tests{m})
}

// tests ends the issuer before it is looked for goroutines that are left.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	defer oidcIssuer.Stop()
	return t.m.Run()
}

func hub(t *testing.T) *kube.Hub {
	t.Helper()
	return shared.Start(t).Hub
}

const patience = queryserver.Patience

// builtFiles are a build as the builder makes it.
func builtFiles() fstest.MapFS {
	return fstest.MapFS{
		"index.html": {Data: []byte("<!doctype html><title>federator</title>")}, "index.html.gz": {Data: []byte("index, gzip")},
		"favicon.svg":        {Data: []byte("<svg/>")},
		"assets/app-1.js":    {Data: []byte("let a")},
		"assets/app-1.js.br": {Data: []byte("app, br")}, "assets/app-1.js.gz": {Data: []byte("app, gzip")},
		"assets/app-1.css": {Data: []byte("a{}")},
	}
}

var whoami = queryserver.Question(func(w http.ResponseWriter, _ *http.Request, c queryapi.Caller) error {
	_, err := io.WriteString(w, c.User().GetName())
	return err
})

// server is a running query API with a UI.
type server struct {
	t *testing.T
	*queryserver.Server
	log *lines
}

// lines are what was logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		found := true
		for _, p := range parts {
			found = found && strings.Contains(line, p)
		}
		if found {
			return true
		}
	}
	return false
}

// setup is what a test may change.
type setup struct {
	ui    webui.Options
	api   queryapi.Options
	local bool // there is no hub
}

// start runs a server until the test ends.
func start(t *testing.T, change func(*setup)) *server {
	t.Helper()
	s := &server{t: t, log: &lines{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	o := setup{ui: webui.Options{Logger: log, Version: "v1.2.3", Files: builtFiles(), Namespace: "federator"}}
	o.api = queryapi.Options{Logger: log, Queries: map[string]queryapi.Query{"whoami": whoami}}
	if change != nil {
		change(&o)
	}
	if o.local {
		o.api.Local = true
	} else {
		o.api.Hub = hub(t).RESTConfig()
		o.ui.Hub = o.api.Hub
	}
	ui, err := webui.New(o.ui)
	if err != nil {
		t.Fatal(err)
	}
	o.api.UI = ui
	s.Server = queryserver.Start(t, o.api)
	return s
}

// withOIDC has users log in at the issuer.
func withOIDC(o *setup) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(oidcIssuer.CA)
	o.ui.OIDC = &webui.OIDC{
		Issuer: oidcIssuer.URL, ClientID: clientID, ClientSecret: func() (string, error) { return clientSecret, nil },
		RootCAs: roots, Scopes: []string{"offline_access"}, RedirectURL: redirectURL,
	}
	o.api.Authentication.HubTokens = []queryapi.HubTokens{{Issuer: oidcIssuer.URL, Audience: clientID}}
}

// browser sends requests as a page of the server does, with the cookies of its jar.
type browser struct {
	s      *server
	client *http.Client
}

// browser returns one with client certificates.
func (s *server) browser(certs ...tls.Certificate) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := s.Transport(s.t, certs...)
	transport.DisableCompression = true
	return &browser{s, &http.Client{
		Transport: transport, Jar: jar, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a request. Header lines are "Name: value"; those without value remove one.
func (b *browser) ask(method, path, body string, header ...string) (*http.Response, string) {
	b.s.t.Helper()
	r, err := http.NewRequestWithContext(b.s.t.Context(), method, "https://"+b.s.Address+path, strings.NewReader(body))
	if err != nil {
		b.s.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "https://"+b.s.Address)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); value == "" {
			r.Header.Del(name)
		}
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer, string(text)
}

func (b *browser) logIn(token string) {
	b.s.t.Helper()
	body, _ := json.Marshal(map[string]string{"token": token})
	if answer, text := b.ask("POST", "/ui/session", string(body)); answer.StatusCode != http.StatusOK {
		b.s.t.Fatalf("log-in: %d %s", answer.StatusCode, text)
	}
}

// sessionInfo is what a page is told.
type sessionInfo struct {
	User           string
	Groups         []string
	Methods        []string
	CanWrite       bool
	CannotWriteWhy string
	Expires        string
	Version        string
	Hub            bool
}

func (b *browser) session(header ...string) sessionInfo {
	b.s.t.Helper()
	answer, text := b.ask("GET", "/ui/session", "", header...)
	var info sessionInfo
	if err := json.Unmarshal([]byte(text), &info); err != nil || answer.StatusCode != http.StatusOK {
		b.s.t.Fatalf("session: %d %s", answer.StatusCode, text)
	}
	return info
}

// wantStatus checks that an answer is a Status with a code, whose message has a text.
func wantStatus(t *testing.T, what string, answer *http.Response, body string, code int, text string) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || int(status.Code) != code || answer.StatusCode != code || !strings.Contains(status.Message, text) {
		t.Errorf("%s: %d %s; want %d and %q", what, answer.StatusCode, body, code, text)
	}
}

func tokenFor(t *testing.T, account string, audiences ...string) string {
	t.Helper()
	return queryserver.TokenFor(t, hub(t), account, audiences...)
}

// allow lets a user do what rules say on the hub, until the test ends.
func allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rbac, name := hub(t).Client().RbacV1(), fmt.Sprintf("test-%d", time.Now().UnixNano())
	meta := metav1.ObjectMeta{Name: name}
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := kube.Until(t.Context(), patience, func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("never: %s", what)
	}
}
