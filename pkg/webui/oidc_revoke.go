package webui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// revokeTimeout bounds how long a log-out waits for the issuer.
const revokeTimeout = 3 * time.Second

// revocation is what the issuer says of how tokens are revoked, in its discovery document.
type revocation struct {
	Endpoint string   `json:"revocation_endpoint"`
	Methods  []string `json:"revocation_endpoint_auth_methods_supported"`
}

// revoke has the issuer end what a refresh token can renew, and the newer one that came in its place, if any. Where it
// does not, the log-out counts all the same: the browser has no cookies any more.
func (u *UI) revoke(ctx context.Context, f refresh, newer string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout) // also of a tab that was closed
	defer cancel()
	tokens := []string{f.Token}
	if newer != "" && newer != f.Token {
		tokens = append(tokens, newer)
	}
	revoked, err := u.oidc.revokeAll(ctx, tokens...)
	switch {
	case err != nil:
		u.log.Warn("web UI: revoking the refresh token of a log-out failed: the issuer accepts it until it expires", "issuer", u.oidc.options.Issuer, "error", err)
	case revoked:
		u.log.Info("web UI: the issuer has revoked the refresh token of a log-out", "issuer", u.oidc.options.Issuer)
	}
}

// revokeAll reports whether the issuer revokes tokens at all, and has revoked these.
func (p *provider) revokeAll(ctx context.Context, tokens ...string) (bool, error) {
	issuer, err := p.discover(ctx)
	if err != nil {
		return false, err
	}
	var how revocation
	if err := issuer.Claims(&how); err != nil || how.Endpoint == "" {
		return false, err
	}
	if at, err := url.Parse(how.Endpoint); err != nil || at.Scheme != "https" { // the client's secret goes there
		return false, errors.New("the issuer's revocation_endpoint is no https address")
	}
	for _, token := range tokens {
		err = errors.Join(err, p.revokeOne(ctx, how, token))
	}
	return err == nil, err
}

func (p *provider) revokeOne(ctx context.Context, how revocation, token string) error {
	form := url.Values{"token": {token}, "token_type_hint": {"refresh_token"}}
	secret := ""
	if p.options.ClientSecret != nil {
		var err error
		if secret, err = p.options.ClientSecret(); err != nil {
			return fmt.Errorf("the client's secret: %w", err)
		}
	}
	basic := secret != "" && (len(how.Methods) == 0 || slices.Contains(how.Methods, "client_secret_basic"))
	if !basic {
		form.Set("client_id", p.options.ClientID)
		if secret != "" {
			form.Set("client_secret", secret)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, how.Endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if basic {
		r.SetBasicAuth(url.QueryEscape(p.options.ClientID), url.QueryEscape(secret)) // as RFC 6749, 2.3.1 has it
	}
	client := *p.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // not to another host
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("revocation: %s", answer.Status)
	}
	return nil
}
