package agent

import (
	"bytes"
	"context"
	"crypto"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

const (
	requestTimeout = 15 * time.Second
	maxMessage     = 512 // of what federator says
)

// ErrRefused is within the error of an agent that federator does not let in: it was deleted, or needs a new token.
var ErrRefused = errors.New("federator refuses this agent")

// enroll returns credentials that are valid: those that were kept, unless federator has refused them, or new ones for the
// token. It waits for whatever passes by itself.
func (a *Agent) enroll(ctx context.Context, refused *credentials) (*credentials, error) {
	var retry backoff
	for {
		c, err := a.tryEnroll(ctx, refused)
		if err == nil || errors.Is(err, ErrRefused) || ctx.Err() != nil {
			return c, err
		}
		a.o.Logger.Warn("joining failed, trying again", "error", err)
		if err := sleep.For(ctx, retry.next()); err != nil {
			return nil, err
		}
	}
}

func (a *Agent) tryEnroll(ctx context.Context, refused *credentials) (*credentials, error) {
	if refused != nil {
		if err := a.readToken(); err != nil {
			return nil, fmt.Errorf("the token: %w", err)
		}
	}
	var kept *credentials
	k, err := a.o.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("what was kept: %w", err)
	}
	if k != nil && len(k.Certificate) > 0 {
		if kept, err = k.parse(); err != nil {
			a.o.Logger.Warn("what was kept is of no use", "error", err)
			kept = nil
		}
	}
	if kept != nil && !kept.valid(time.Now()) {
		a.o.Logger.Warn("the certificate has expired", "at", kept.certificate.Leaf.NotAfter)
		kept = nil
	}
	if kept != nil && refused != nil && bytes.Equal(kept.kept.Certificate, refused.kept.Certificate) {
		kept = nil
	}
	used := refused != nil && a.token != nil && refused.kept.Token == a.token.ID()
	switch {
	case kept != nil && (a.token == nil || kept.kept.Token == a.token.ID()):
		kept.saved = true
		// By the clock on the wall, as nothing else is known of the time before.
		kept.renewAt = time.Now().Add(max(time.Until(kept.certificate.Leaf.NotBefore.Add(kept.spread(kept.life()))), 0))
		return kept, nil
	case a.token == nil || used:
		return nil, fmt.Errorf("%w: there is no certificate that is valid, and no token that was not used: make one with federator agent token", ErrRefused)
	}
	if err := a.keyToJoin(ctx, k, kept == nil); err != nil {
		return nil, err
	}
	c, err := a.join(ctx)
	if errors.Is(err, ErrRefused) {
		a.failed = a.token.ID()
	}
	if kept != nil && errors.Is(err, ErrRefused) {
		a.o.Logger.Warn("the token is refused; the certificate of before is used", "error", err)
		return kept, nil
	}
	return c, err
}

// keyToJoin sets the key to join with by the token of now. It is the same for all tries, also after a restart: where the
// answer is lost, federator can tell that it is the same agent that comes again.
func (a *Agent) keyToJoin(ctx context.Context, k *Kept, keep bool) error {
	id := a.token.ID()
	if a.joining.of == id {
		return nil
	}
	if k != nil && len(k.Certificate) == 0 && k.Token == id {
		if key, err := identity.DecodeKey(k.Key); err == nil {
			a.joining.key, a.joining.of = key, id
			return nil
		}
	}
	key, err := identity.NewKey()
	if err != nil {
		return err
	}
	text, err := identity.EncodeKey(key)
	if err != nil {
		return err
	}
	if keep { // there is no certificate that it would replace
		if err := a.o.Store.Save(ctx, &Kept{Key: text, Token: id}); err != nil {
			a.o.Logger.Warn("the key to join with could not be kept", "error", err)
		}
	}
	a.joining.key, a.joining.of = key, id
	return nil
}

// readToken reads the token that is there now.
func (a *Agent) readToken() error {
	if a.o.ReadToken == nil {
		return nil
	}
	text, err := a.o.ReadToken()
	if err != nil {
		return err
	}
	if text == "" {
		a.token = nil
		return nil
	}
	token, err := joining.ParseToken(text)
	if err == nil {
		a.token = &token
	}
	return err
}

// join joins at the first process that answers.
func (a *Agent) join(ctx context.Context) (*credentials, error) {
	var errs []error
	for _, hub := range a.o.Hubs {
		c, err := a.obtain(ctx, hub, joining.JoinPath, joining.Request{Token: a.token.String()}, a.joining.key, a.token.ID(), func(host string) *tls.Config {
			return &tls.Config{
				MinVersion: tls.VersionTLS13, ServerName: host,
				InsecureSkipVerify: true, // it is verified, by the CA that the token names
				VerifyConnection:   func(s tls.ConnectionState) error { return verify(s, a.token.Authority, host) },
			}
		})
		if err == nil || errors.Is(err, ErrRefused) {
			return c, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// verify verifies a server by the digest of its CA's key.
func verify(s tls.ConnectionState, digest [32]byte, host string) error {
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), DNSName: host}
	for _, c := range s.PeerCertificates[1:] {
		if identity.Digest(c) == digest {
			opts.Roots.AddCert(c)
		}
	}
	_, err := s.PeerCertificates[0].Verify(opts)
	return err
}

// renew gets another certificate.
func (a *Agent) renew(ctx context.Context, c *credentials) (*credentials, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, hub := range a.o.Hubs {
		c, err := a.obtain(ctx, hub, joining.RenewPath, joining.Request{}, key, c.kept.Token, c.tls)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// obtain gets a certificate for a key, and keeps both.
func (a *Agent) obtain(ctx context.Context, hub, path string, req joining.Request, key crypto.Signer, token string, config func(host string) *tls.Config) (*credentials, error) {
	var err error
	if req.CSR, err = x509.CreateCertificateRequest(cryptorand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, err
	}
	resp, err := a.ask(ctx, hub, path, req, config)
	if err != nil {
		return nil, err
	}
	k := &Kept{Certificate: resp.Certificate, Authorities: resp.Authorities, Token: token}
	if k.Key, err = identity.EncodeKey(key); err != nil {
		return nil, err
	}
	c, err := k.parse()
	if err != nil {
		return nil, fmt.Errorf("%s: the certificate: %w", hub, err)
	}
	c.received(time.Now())
	a.o.Logger.Info("got a certificate", "member", resp.Member, "expires", c.certificate.Leaf.NotAfter)
	// The token is used up: the certificate counts, even if it could not be kept yet.
	if err := a.save(ctx, c); err != nil {
		a.o.Logger.Error("the certificate could not be kept, trying again: if the agent restarts before, it needs a new token", "error", err)
	}
	return c, nil
}

// save keeps credentials.
func (a *Agent) save(ctx context.Context, c *credentials) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := a.o.Store.Save(ctx, c.kept)
	c.saved = err == nil
	return err
}

// hello asks whether the agent is accepted.
func (a *Agent) hello(ctx context.Context, hub string, c *credentials) error {
	_, err := a.ask(ctx, hub, joining.HelloPath, joining.Request{}, c.tls)
	return err
}

// ask sends one request over a connection of its own. That federator refuses for good is an ErrRefused.
func (a *Agent) ask(ctx context.Context, hub, path string, body joining.Request, config func(host string) *tls.Config) (*joining.Response, error) {
	host, _, err := net.SplitHostPort(hub)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body.Version = a.o.Version
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+hub+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	t := &http.Transport{DialContext: a.o.Dial, TLSClientConfig: config(host), DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10}
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if rejected(err) {
		return nil, fmt.Errorf("%w: %s: %w", ErrRefused, hub, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", hub, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w", hub, refusal(resp, path))
	}
	out := &joining.Response{}
	if err := joining.Decode(resp.Body, out); err != nil {
		return nil, fmt.Errorf("%s: the response: %w", hub, err)
	}
	return out, nil
}

// rejected reports whether federator, which was verified by then, does not take the agent's certificate.
func rejected(err error) bool {
	var alert *net.OpError // crypto/tls does not export what an alert is
	return errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate")
}

// refusal returns why federator has refused a request.
func refusal(resp *http.Response, path string) error {
	var status metav1.Status
	if err := joining.Decode(resp.Body, &status); err != nil || status.Message == "" {
		status.Message = resp.Status
	}
	text := fmt.Sprintf("%.*q", maxMessage, status.Message)
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest && path == joining.JoinPath: // a token that is none
		return fmt.Errorf("%w: %s", ErrRefused, text)
	}
	return errors.New(text)
}

// tls is how federator is verified, and the agent shows who it is.
func (c *credentials) tls(host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: c.pool, Certificates: []tls.Certificate{c.certificate}}
}
