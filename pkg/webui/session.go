package webui

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/webui/internal/cookies"
)

// maxToken is how large a token may be, in bytes.
const maxToken = 12 << 10

// Names of cookies. The prefix has browsers take them only over TLS, from this host and for all
// of its paths: no other host of the domain can set them.
const (
	sessionCookie = "__Host-federator-session"
	refreshCookie = "__Host-federator-refresh"
	loginCookie   = "__Host-federator-login"
)

// session is what is sealed in the cookie of a session.
type session struct {
	Token   string `json:"token"`
	Expires int64  `json:"expires,omitempty"` // in seconds; 0 where the token does not say
}

// sessionInfo is what pages are told of a session.
type sessionInfo struct {
	User           string   `json:"user"` // "" of nobody
	Groups         []string `json:"groups"`
	Methods        []string `json:"methods"`
	CanWrite       bool     `json:"canWrite"`
	CannotWriteWhy string   `json:"cannotWriteWhy"`
	// Expires is when the session ends; "" where that is not known, or it is renewed until then.
	Expires string `json:"expires"`
	Version string `json:"version"`
	Hub     bool   `json:"hub"`
}

// ways to log in, in sessionInfo.
const (
	byToken = "token"
	byOIDC  = "oidc"
	byProxy = "proxy" // which adds the credentials to each request, or its own client certificate
)

func (u *UI) serveSession(w http.ResponseWriter, r *http.Request, callers queryapi.UICallers) {
	w.Header().Set("Cache-Control", "no-store")
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = u.showSession(w, r, callers)
	case http.MethodPost:
		err = u.logIn(w, r, callers)
	case http.MethodDelete:
		err = u.logOut(w, r, callers)
	default:
		methodNotAllowed(w, "GET, HEAD, POST, DELETE")
	}
	if err != nil {
		u.writeError(w, r, err)
	}
}

// showSession answers who the caller is. Nobody is an answer, too.
func (u *UI) showSession(w http.ResponseWriter, r *http.Request, callers queryapi.UICallers) error {
	token, proxied := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	ours := r.Header.Get("Sec-Fetch-Site") == "same-origin"
	if !proxied && r.Header.Get("Authorization") == "" && ours {
		var err error
		if token, err = u.Bearer(w, r); err != nil {
			return err
		}
	}
	if caller, ok := callers.ByCertificate(r); ok && ours && (proxied || token == "") {
		info := u.nobody(true)
		u.describe(&info, caller, false)
		info.Expires = r.TLS.PeerCertificates[0].NotAfter.UTC().Format(time.RFC3339)
		writeJSON(w, http.StatusOK, info)
		return nil
	}
	info := u.nobody(proxied)
	if token == "" {
		writeJSON(w, http.StatusOK, info)
		return nil
	}
	caller, err := callers.ByToken(r.Context(), token)
	switch {
	case apierrors.IsUnauthorized(err):
		if !proxied {
			u.forget(w, r)
		}
		writeJSON(w, http.StatusOK, info)
		return nil
	case err != nil:
		return err
	}
	u.describe(&info, caller, !proxied && u.hasRefresh(r))
	writeJSON(w, http.StatusOK, info)
	return nil
}

func (u *UI) nobody(proxied bool) sessionInfo {
	info := sessionInfo{Groups: []string{}, Methods: []string{byToken}, Version: u.version, Hub: u.relay != nil}
	switch {
	case proxied:
		info.Methods = []string{byProxy}
	case u.oidc != nil:
		info.Methods = []string{byOIDC, byToken}
	}
	return info
}

func (u *UI) describe(info *sessionInfo, caller queryapi.UICaller, renewed bool) {
	info.User = caller.User.GetName()
	info.Groups = append(info.Groups, caller.User.GetGroups()...)
	info.CannotWriteWhy = u.cannotWrite(caller)
	info.CanWrite = info.CannotWriteWhy == ""
	if at := expiryOf(caller.Token); !renewed && !at.IsZero() {
		info.Expires = at.UTC().Format(time.RFC3339)
	}
}

// logIn makes a session of a token.
func (u *UI) logIn(w http.ResponseWriter, r *http.Request, callers queryapi.UICallers) error {
	if err := u.checkPage(r); err != nil {
		return err
	}
	var body struct {
		Token string `json:"token"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	token := strings.TrimSpace(body.Token)
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return apierrors.NewBadRequest("this is not a token")
	}
	caller, err := callers.ByToken(r.Context(), token)
	if err != nil {
		return err
	}
	if err := u.setSession(w, r, token); err != nil {
		return err
	}
	cookies.Clear(w, r, refreshCookie)
	u.log.Info("web UI: logged in", "user", caller.User.GetName(), "method", byToken)
	info := u.nobody(false)
	u.describe(&info, caller, false)
	writeJSON(w, http.StatusOK, info)
	return nil
}

func (u *UI) logOut(w http.ResponseWriter, r *http.Request, callers queryapi.UICallers) error {
	if err := u.checkPage(r); err != nil {
		return err
	}
	s, ok := u.readSession(r)
	f, renewed := u.readRefresh(r)
	if _, named := callers.ByCertificate(r); named && !ok && !renewed {
		return apierrors.NewBadRequest("you are logged in by the client certificate of your browser, which only closing the browser ends")
	}
	if ok {
		if caller, err := callers.ByToken(r.Context(), s.Token); err == nil {
			u.log.Info("web UI: logged out", "user", caller.User.GetName())
		}
	}
	ends, newer := renewed && u.oidc != nil, ""
	if ends {
		newer = u.oidc.end(f.Token) // first: what is renewed at this moment would come after the cookies are gone
	}
	u.forget(w, r)
	w.WriteHeader(http.StatusNoContent)
	if ends {
		_ = http.NewResponseController(w).Flush() // a tab that is closed before the issuer answers is logged out, too
		u.revoke(r.Context(), f, newer)
	}
	return nil
}

// checkPage refuses what changes a session unless a page of the UI sends it, and the session counts.
func (u *UI) checkPage(r *http.Request) error {
	if r.Header.Get("Sec-Fetch-Site") != "same-origin" || u.origins.Check(r) != nil {
		return forbidden("a session is made and ended by pages of this server only")
	}
	if r.Header.Get("Authorization") != "" {
		return apierrors.NewBadRequest("the request has credentials, so that it has no session")
	}
	return nil
}

// forget ends the session of a browser.
func (u *UI) forget(w http.ResponseWriter, r *http.Request) {
	cookies.Clear(w, r, sessionCookie)
	cookies.Clear(w, r, refreshCookie)
}

// setSession sets the cookies of a session, until its token expires.
func (u *UI) setSession(w http.ResponseWriter, r *http.Request, token string) error {
	s := session{Token: token}
	expires := expiryOf(token)
	if !expires.IsZero() {
		s.Expires = expires.Unix()
	}
	sealed, err := u.sessions.Seal(s)
	if err == nil {
		err = cookies.Set(w, r, sessionCookie, sealed, expires, u.now())
	}
	if errors.Is(err, cookies.ErrTooLarge) {
		return newStatus(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the token: "+err.Error())
	}
	return err
}

// readSession returns a request's session, of which the token has not expired.
func (u *UI) readSession(r *http.Request) (session, bool) {
	var s session
	text, err := cookies.Read(r, sessionCookie)
	if err != nil || text == "" || u.sessions.Open(text, &s) != nil || s.Token == "" {
		return session{}, false
	}
	if s.Expires != 0 && u.now().Unix() >= s.Expires {
		return session{}, false
	}
	return s, true
}

// Bearer implements queryapi.UI.
func (u *UI) Bearer(w http.ResponseWriter, r *http.Request) (string, error) {
	s, _ := u.readSession(r)
	if u.oidc == nil || s.Token != "" && (s.Expires == 0 || u.now().Add(renewBefore).Unix() < s.Expires) {
		return s.Token, nil
	}
	return u.renew(w, r, s.Token)
}

// expiryOf returns when a token expires, the zero time where it does not say. Its claims are not
// proven by this; who has accepted it has proven them.
func expiryOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Expires float64 `json:"exp"`
	}
	const lastSecond = 1 << 40
	if err != nil || json.Unmarshal(body, &claims) != nil || claims.Expires <= 0 || claims.Expires > lastSecond {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
