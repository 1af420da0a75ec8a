package webui

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"federator.dev/federator/pkg/webui/internal/cookies"
)

// OIDC is an issuer of OpenID Connect whose ID tokens the hub accepts, too.
type OIDC struct {
	Issuer, ClientID string
	// ClientSecret returns the client's secret; nil for a public client.
	ClientSecret func() (string, error)
	// RootCAs verify the issuer; nil means the system's.
	RootCAs *x509.CertPool
	// Scopes in addition to openid.
	Scopes []string
	// RedirectURL is the address of /ui/oidc/callback as browsers see it; "" means that at the host that
	// the browser asked.
	RedirectURL string
}

// Bounds of what the issuer may cost.
const (
	issuerTimeout   = 10 * time.Second
	maxIssuerAnswer = 1 << 20
	loginTTL        = 10 * time.Minute
)

// provider logs users in at an issuer.
type provider struct {
	options OIDC
	logins  cookies.Sealer
	now     func() time.Time
	client  *http.Client
	flights singleflight.Group

	renewals sync.Mutex            // of what is read and written of renewed at a time
	renewed  *cache.LRUExpireCache // outcomes of renewals, and of log-outs, by refresh token

	mu    sync.Mutex
	known *oidc.Provider // nil until the issuer has been reached
}

func newProvider(o OIDC, logins cookies.Sealer, now func() time.Time) (*provider, error) {
	if o.Issuer == "" || o.ClientID == "" {
		return nil, errors.New("OIDC: issuer and client ID are required")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: issuerTimeout, DisableKeepAlives: true, // log-ins are rare
	}
	return &provider{
		options: o, logins: logins, now: now, renewed: cache.NewLRUExpireCache(maxRenewed),
		client: &http.Client{Timeout: issuerTimeout, Transport: boundedTransport{transport}},
	}, nil
}

// boundedTransport bounds the size of answers.
type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, maxIssuerAnswer), answer.Body}
	}
	return answer, err
}

// discover returns what the issuer says of itself. It is asked until it has answered once.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.options.Issuer)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = found
	return found, nil
}

// config returns the client that a browser at a host logs in with.
func (p *provider) config(issuer *oidc.Provider, host string) (*oauth2.Config, error) {
	c := &oauth2.Config{
		ClientID: p.options.ClientID, Endpoint: issuer.Endpoint(), RedirectURL: p.options.RedirectURL,
		Scopes: append([]string{oidc.ScopeOpenID}, p.options.Scopes...),
	}
	if c.RedirectURL == "" {
		c.RedirectURL = "https://" + host + root + "/oidc/callback"
	}
	if p.options.ClientSecret != nil {
		secret, err := p.options.ClientSecret()
		if err != nil {
			return nil, fmt.Errorf("the client's secret: %w", err)
		}
		c.ClientSecret = secret
	}
	return c, nil
}

// verify returns the claims of an ID token that is the issuer's, and this client's.
func (p *provider) verify(ctx context.Context, issuer *oidc.Provider, token *oauth2.Token) (*oidc.IDToken, string, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok || raw == "" {
		return nil, "", errNoIDToken
	}
	id, err := issuer.VerifierContext(oidc.ClientContext(ctx, p.client), &oidc.Config{ClientID: p.options.ClientID, Now: p.now}).Verify(ctx, raw)
	return id, raw, err
}

var errNoIDToken = errors.New("the issuer sent no ID token")

// login is what is sealed in the cookie of a log-in that has begun.
type login struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Return   string `json:"return"`
	Expires  int64  `json:"expires"`
}

// serveLogin sends a browser to the issuer.
func (u *UI) serveLogin(w http.ResponseWriter, r *http.Request) {
	p := u.oidc
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet {
		methodNotAllowed(w, "GET")
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		writeStatus(w, forbidden("a log-in is begun by pages of this server only").Status())
		return
	}
	back, err := returnPath(r.URL.Query().Get("return"))
	if err != nil {
		u.refuseLogin(w, http.StatusBadRequest, "The page to return to is none of this UI.")
		return
	}
	issuer, err := p.discover(r.Context())
	if err != nil {
		u.log.Warn("web UI: reaching the OIDC issuer failed", "issuer", p.options.Issuer, "error", err)
		u.refuseLogin(w, http.StatusBadGateway, "The issuer cannot be reached. Its operator finds the reason in federator's log.")
		return
	}
	config, err := p.config(issuer, r.Host)
	if err != nil {
		u.log.Error("web UI: log-in failed", "error", err)
		u.refuseLogin(w, http.StatusInternalServerError, "Federator is not set up for it. Its operator finds the reason in its log.")
		return
	}
	l := login{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: back, Expires: p.now().Add(loginTTL).Unix()}
	sealed, err := p.logins.Seal(l)
	if err != nil {
		u.writeError(w, r, err)
		return
	}
	c := cookies.New(loginCookie)
	c.Value, c.MaxAge, c.SameSite = sealed, int(loginTTL/time.Second), http.SameSiteLaxMode // the issuer is another site
	http.SetCookie(w, c)
	http.Redirect(w, r, config.AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)), http.StatusFound)
}

// maxReturn bounds the address to return to: it is in a cookie.
const maxReturn = 2000

// returnPath returns the page of the UI to return to: never another site.
func returnPath(text string) (string, error) {
	if text == "" {
		return root + "/", nil
	}
	bad := errors.New("the page to return to is none of this UI")
	outside := func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\"<>`, c) }
	if len(text) > maxReturn || strings.ContainsFunc(text, outside) {
		return "", bad
	}
	at, err := url.Parse(text)
	if err != nil || at.IsAbs() || at.Host != "" || at.User != nil || at.Opaque != "" {
		return "", bad
	}
	if at.Path != root && !strings.HasPrefix(at.Path, root+"/") || path.Clean(at.Path) != strings.TrimSuffix(at.Path, "/") {
		return "", bad
	}
	return text, nil
}

// readLogin returns the log-in that a browser has begun, and that its callback is of.
func (p *provider) readLogin(r *http.Request) (login, bool) {
	var l login
	text, ok := cookies.ReadOne(r, loginCookie)
	if !ok || p.logins.Open(text, &l) != nil || p.now().Unix() >= l.Expires {
		return l, false
	}
	return l, subtle.ConstantTimeCompare([]byte(l.State), []byte(r.URL.Query().Get("state"))) == 1
}
