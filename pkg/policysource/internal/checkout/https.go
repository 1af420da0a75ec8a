package checkout

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// httpsTransport is git's smart HTTP (gitprotocol-http(5)).
type httpsTransport struct {
	client http.Client
	conns  *http.Transport
	base   url.URL // of the repository, after redirects
	auth   Auth
}

const (
	handshakeTimeout = 10 * time.Second
	maxHeader        = 64 << 10
	maxRedirects     = 5
	userAgent        = "git/federator" // some servers require git/
)

func openHTTPS(r Remote, auth Auth, dial func(context.Context, string, string) (net.Conn, error),
	proxy func(*http.Request) (*url.URL, error), transport http.RoundTripper,
) (*httpsTransport, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if len(auth.CA) > 0 && !roots.AppendCertsFromPEM(auth.CA) {
		return nil, fail(ErrRequest, "the CA contains no PEM certificate")
	}
	t := &httpsTransport{base: *r.url(), auth: auth, conns: &http.Transport{
		Proxy: proxy, DialContext: dial, TLSHandshakeTimeout: handshakeTimeout,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true,
	}}
	if transport == nil {
		transport = t.conns
	}
	t.client = http.Client{Transport: transport, CheckRedirect: t.redirect}
	return t, nil
}

// redirect allows redirects to other paths on the same host only: other hosts must not
// receive the credentials.
func (t *httpsTransport) redirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fail(ErrRedirect, "more than %d redirects", maxRedirects)
	case req.URL.Scheme != t.base.Scheme || !strings.EqualFold(req.URL.Host, t.base.Host):
		return fail(ErrRedirect, "to %s://%s", shorten(req.URL.Scheme), shorten(req.URL.Host))
	case req.URL.User != nil:
		return fail(ErrRedirect, "the target contains credentials")
	}
	return nil
}

const infoRefs = "/info/refs"

func (t *httpsTransport) advertisement(ctx context.Context) (io.ReadCloser, error) {
	at := t.base
	at.Path += infoRefs
	at.RawQuery = "service=git-upload-pack"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fail(ErrRequest, "the URL is invalid")
	}
	res, err := t.do(req, "application/x-git-upload-pack-advertisement")
	if err != nil {
		return nil, err
	}
	path, ok := strings.CutSuffix(res.Request.URL.Path, infoRefs)
	if !ok {
		res.Body.Close()
		return nil, fail(ErrRedirect, "to another service")
	}
	t.base.Path = path
	return res.Body, nil
}

func (t *httpsTransport) exchange(ctx context.Context, request []byte) (io.ReadCloser, error) {
	at := t.base
	at.Path += "/git-upload-pack"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(request))
	if err != nil {
		return nil, fail(ErrRequest, "the URL is invalid")
	}
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	res, err := t.do(req, "application/x-git-upload-pack-result")
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// do sends a request; a response of another content type is an error.
func (t *httpsTransport) do(req *http.Request, contentType string) (*http.Response, error) {
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", contentType)
	switch {
	case t.auth.Token != "":
		req.Header.Set("Authorization", "Bearer "+string(t.auth.Token))
	case t.auth.Username != "":
		req.SetBasicAuth(t.auth.Username, string(t.auth.Password))
	}
	res, err := t.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL
		}
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fail(statusError(res.StatusCode), "HTTP status %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	if got, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); strings.TrimSpace(got) != contentType {
		res.Body.Close()
		return nil, fail(ErrProtocol, "the response has content type %q, which is not that of git's smart HTTP", shorten(got))
	}
	return res, nil
}

func statusError(status int) error {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired:
		return ErrDenied
	case status == http.StatusNotFound || status == http.StatusGone:
		return ErrNotFound
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return ErrUnreachable
	}
	return ErrProtocol
}

func (t *httpsTransport) close() { t.conns.CloseIdleConnections() }
