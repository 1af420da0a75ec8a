package webui

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/webui/internal/cookies"
)

// issued is what the issuer has sent for a user.
type issued struct {
	token, subject, refresh string
}

// serveCallback makes a session of the issuer's answer, and a page that navigates on: a redirect
// would still be the issuer's, which Strict cookies are not sent with.
func (u *UI) serveCallback(w http.ResponseWriter, r *http.Request, callers queryapi.UICallers) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet {
		methodNotAllowed(w, "GET")
		return
	}
	l, ok := u.oidc.readLogin(r)
	if !ok {
		u.refuseLogin(w, http.StatusBadRequest, "It was not begun in this browser, or more than ten minutes ago.")
		return
	}
	c := cookies.New(loginCookie)
	c.SameSite = http.SameSiteLaxMode
	cookies.ClearOne(w, r, c) // it counts once
	q := r.URL.Query()
	if problem := q.Get("error"); problem != "" {
		u.refuseLogin(w, http.StatusForbidden, "The issuer says: "+clip.Text(problem+" "+q.Get("error_description"), 300))
		return
	}
	got, err := u.oidc.exchange(r.Context(), r.Host, q.Get("code"), l)
	if err != nil {
		u.log.Warn("web UI: log-in failed", "issuer", u.oidc.options.Issuer, "error", err)
		u.refuseLogin(w, http.StatusBadGateway, "The issuer's answer is not accepted. Federator's operator finds the reason in its log.")
		return
	}
	caller, err := callers.ByToken(r.Context(), got.token)
	switch {
	case apierrors.IsUnauthorized(err):
		u.log.Warn("web UI: the hub does not accept an ID token: its API server must trust the issuer and the client ID", "issuer", u.oidc.options.Issuer, "subject", got.subject)
		u.refuseLogin(w, http.StatusForbidden, "The hub does not accept the issuer's token: its API server must trust the same issuer and client ID.")
		return
	case err != nil:
		u.refuseLogin(w, http.StatusServiceUnavailable, "The hub does not answer. Try again.")
		return
	}
	if err := u.setIssued(w, r, got); err != nil {
		u.log.Warn("web UI: log-in failed", "user", caller.User.GetName(), "error", err)
		u.refuseLogin(w, http.StatusInternalServerError, "The issuer's tokens are too large for cookies.")
		return
	}
	u.log.Info("web UI: logged in", "user", caller.User.GetName(), "method", byOIDC)
	page(w, http.StatusOK, l.Return, "You are logged in.")
}

// exchange gets the tokens of a log-in.
func (p *provider) exchange(ctx context.Context, host, code string, l login) (issued, error) {
	issuer, err := p.discover(ctx)
	if err != nil {
		return issued{}, err
	}
	config, err := p.config(issuer, host)
	if err != nil {
		return issued{}, err
	}
	token, err := config.Exchange(oidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(l.Verifier))
	if err != nil {
		return issued{}, err
	}
	id, raw, err := p.verify(ctx, issuer, token)
	if err != nil {
		return issued{}, err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(l.Nonce)) != 1 {
		return issued{}, errors.New("the ID token has another nonce")
	}
	return issued{raw, id.Subject, token.RefreshToken}, nil
}

// setIssued sets the cookies of a session by OIDC.
func (u *UI) setIssued(w http.ResponseWriter, r *http.Request, got issued) error {
	if err := u.setSession(w, r, got.token); err != nil {
		return err
	}
	if got.refresh == "" {
		cookies.Clear(w, r, refreshCookie)
		return nil
	}
	sealed, err := u.refreshes.Seal(refresh{got.refresh, got.subject})
	if err != nil {
		return err
	}
	return cookies.Set(w, r, refreshCookie, sealed, time.Time{}, u.now())
}

func (u *UI) refuseLogin(w http.ResponseWriter, code int, why string) {
	page(w, code, "", "You are not logged in. "+why)
}

// page writes a page without scripts, which goes on to an address by itself unless that is "".
func page(w http.ResponseWriter, code int, next, text string) {
	meta, label := "", "Continue"
	if next == "" {
		next, label = root+"/", "Back"
	} else {
		meta = `<meta http-equiv="refresh" content="0;url=` + html.EscapeString(next) + `">`
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The client may be gone.
	_, _ = fmt.Fprintf(w, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">%s<title>federator</title></head>\n<body><p>%s</p><p><a href=\"%s\">%s</a></p></body></html>\n",
		meta, html.EscapeString(text), html.EscapeString(next), label)
}
