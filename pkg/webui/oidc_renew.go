package webui

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/webui/internal/cookies"
)

// Renewal of ID tokens. An outcome is kept for the requests that were sent before the browser had
// the new cookies, and a failure for those that come meanwhile.
const (
	renewBefore = time.Minute
	maxRenewed  = 10_000
	renewedTTL  = time.Minute
	failedTTL   = 5 * time.Second
)

// refresh is what is sealed in the cookie of a refresh token.
type refresh struct {
	Token   string `json:"token"`
	Subject string `json:"subject"` // that new ID tokens must have
}

// outcome is what has come of a renewal.
type outcome struct {
	issued
	refused bool // for good
	err     error
}

func (u *UI) readRefresh(r *http.Request) (refresh, bool) {
	var f refresh
	text, err := cookies.Read(r, refreshCookie)
	return f, err == nil && text != "" && u.refreshes.Open(text, &f) == nil && f.Token != ""
}

func (u *UI) hasRefresh(r *http.Request) bool {
	if u.oidc == nil {
		return false
	}
	_, has := u.readRefresh(r)
	return has
}

// renew returns a new ID token in place of one that expires, or has expired (""), and sets its cookies.
func (u *UI) renew(w http.ResponseWriter, r *http.Request, token string) (string, error) {
	f, ok := u.readRefresh(r)
	if !ok {
		return token, nil
	}
	got := u.oidc.renew(r.Context(), f)
	switch {
	case got.err == nil:
		return got.token, u.setIssued(w, r, got.issued)
	case token != "": // it counts for a moment still
		return token, nil
	case got.refused:
		u.forget(w, r)
		return "", nil
	}
	return "", apierrors.NewServiceUnavailable("the session cannot be renewed: the OIDC issuer does not answer")
}

// renew renews a session once, however many requests of it come at a time.
func (p *provider) renew(ctx context.Context, f refresh) outcome {
	key := sha256.Sum256([]byte(f.Token))
	flown, _, _ := p.flights.Do(string(key[:]), func() (any, error) {
		if kept, ok := p.renewed.Get(key); ok {
			return kept, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTimeout) // others wait for it
		defer cancel()
		o := p.askForRenewal(ctx, f)
		kept, ok := p.keep(key, o)
		if ok && o.refresh != "" { // the browser has logged out meanwhile
			_, err := p.revokeAll(ctx, o.refresh)
			return outcome{refused: true, err: errors.Join(errLoggedOut, err)}, nil
		}
		return kept, nil
	})
	o, _ := flown.(outcome)
	return o
}

// errLoggedOut is what comes of renewing a session that was ended.
var errLoggedOut = errors.New("the session was ended")

// keep keeps the outcome of a renewal, unless there is one that counts already: that of a log-out.
func (p *provider) keep(key [sha256.Size]byte, o outcome) (kept any, was bool) {
	p.renewals.Lock()
	defer p.renewals.Unlock()
	if kept, was = p.renewed.Get(key); was {
		return kept, true
	}
	ttl := renewedTTL
	if o.err != nil {
		ttl = failedTTL
	}
	p.renewed.Add(key, o, ttl)
	return o, false
}

// end has nothing renewed by a refresh token any more, and returns the one that came in its place, "" where none did.
func (p *provider) end(token string) (newer string) {
	key := sha256.Sum256([]byte(token))
	p.renewals.Lock()
	defer p.renewals.Unlock()
	if kept, ok := p.renewed.Get(key); ok {
		o, _ := kept.(outcome)
		newer = o.refresh
	}
	p.renewed.Add(key, outcome{refused: true, err: errLoggedOut}, renewedTTL)
	return newer
}

func (p *provider) askForRenewal(ctx context.Context, f refresh) outcome {
	issuer, err := p.discover(ctx)
	if err != nil {
		return outcome{err: err}
	}
	config, err := p.config(issuer, "")
	if err != nil {
		return outcome{err: err}
	}
	token, err := config.TokenSource(oidc.ClientContext(ctx, p.client), &oauth2.Token{RefreshToken: f.Token}).Token()
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		return outcome{err: err, refused: refused.Response != nil && refused.Response.StatusCode < http.StatusInternalServerError}
	}
	if err != nil {
		return outcome{err: err}
	}
	id, raw, err := p.verify(ctx, issuer, token)
	if err != nil {
		return outcome{err: err, refused: errors.Is(err, errNoIDToken)}
	}
	if id.Subject != f.Subject {
		return outcome{err: errors.New("the ID token is of another subject"), refused: true}
	}
	return outcome{issued: issued{raw, id.Subject, token.RefreshToken}}
}
