package externaldata

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"federator.dev/federator/internal/clip"
)

const (
	maxHeader        = 64 << 10
	handshakeTimeout = 10 * time.Second
)

// server asks one address. It belongs to one goroutine.
type server struct {
	HTTPS

	maxBytes int
	timeout  time.Duration
	conns    *http.Transport
	client   http.Client
	etag     string // of the content that was taken last
}

var errRedirect = errors.New("the server redirects, which is refused")

func newServer(d *Document, opts *Options) (*server, error) {
	roots, err := x509.SystemCertPool()
	if len(d.HTTPS.CA) > 0 {
		roots, err = x509.NewCertPool(), nil
		if !roots.AppendCertsFromPEM(d.HTTPS.CA) {
			return nil, errors.New("the CA contains no PEM certificate")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the system's CAs cannot be read: %w", err)
	}
	s := &server{HTTPS: *d.HTTPS, maxBytes: d.MaxBytes, timeout: opts.Timeout, conns: &http.Transport{
		DialContext: opts.Dial, TLSHandshakeTimeout: handshakeTimeout, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: maxHeader, ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: 30 * time.Second,
	}}
	s.client = http.Client{Transport: s.conns, CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }}
	return s, nil
}

func (s *server) close() { s.conns.CloseIdleConnections() }

// get returns what the server answers, or that it is what was taken last.
func (s *server) get(ctx context.Context) reading {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return reading{bad: invalid("the URL is malformed")}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "federator")
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+string(s.Token))
	}
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return reading{bad: unreachable(ctx, err)}
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotModified && s.etag != "":
		return reading{unchanged: true, etag: s.etag}
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		return reading{bad: &fault{"NotFound", fmt.Sprintf("the server answers %d: it has no such document", res.StatusCode), true}}
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return reading{bad: &fault{"Denied", fmt.Sprintf("the server answers %d: it does not accept the token", res.StatusCode), false}}
	case res.StatusCode != http.StatusOK:
		return reading{bad: &fault{"Unreachable", fmt.Sprintf("the server answers %d", res.StatusCode), false}}
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, int64(s.maxBytes)+1))
	switch {
	case err != nil:
		return reading{bad: unreachable(ctx, err)}
	case len(text) > s.maxBytes:
		return reading{bad: &fault{"TooLarge", fmt.Sprintf("it has more than %d bytes", s.maxBytes), true}}
	}
	etag := res.Header.Get("Etag")
	if len(etag) > 1024 {
		etag = ""
	}
	from := s.URL
	if etag != "" {
		from += " " + clip.Line(etag, 64)
	}
	return reading{text: text, from: from, etag: etag}
}

// unreachable is a server that did not answer.
func unreachable(ctx context.Context, err error) *fault {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL
	}
	switch {
	case errors.Is(err, errRedirect):
		return &fault{"Redirect", errRedirect.Error(), false}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &fault{"Unreachable", "the server takes too long", false}
	}
	return &fault{"Unreachable", clip.Line(err.Error(), 200), false}
}
