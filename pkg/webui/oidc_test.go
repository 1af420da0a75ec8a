package webui_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/test/issuer"
)

// stranger is a browser at the issuer.
func stranger(t *testing.T) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(oidcIssuer.CA)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// begin begins a log-in, and returns where the issuer sends the browser back to: path and query.
func (b *browser) begin(user, back string) string {
	b.s.t.Helper()
	answer, body := b.ask("GET", "/ui/oidc/login?return="+url.QueryEscape(back), "")
	if answer.StatusCode != http.StatusFound {
		b.s.t.Fatalf("log-in: %d %s", answer.StatusCode, body)
	}
	at, err := oidcIssuer.LogIn(stranger(b.s.t), answer.Header.Get("Location"), user, issuer.Password)
	if err != nil {
		b.s.t.Fatal(err)
	}
	callback, err := url.Parse(at)
	if err != nil || !strings.HasPrefix(at, redirectURL+"?") {
		b.s.t.Fatalf("the issuer sends the browser to %s", at)
	}
	return callback.RequestURI()
}

// logInAs logs a user in at the issuer.
func (b *browser) logInAs(user string) {
	b.s.t.Helper()
	answer, body := b.ask("GET", b.begin(user, "/ui/"), "", "Sec-Fetch-Site: cross-site")
	if answer.StatusCode != http.StatusOK {
		b.s.t.Fatalf("callback: %d %s", answer.StatusCode, body)
	}
}

func TestOIDC_LogIn(t *testing.T) {
	s := start(t, withOIDC)
	b := s.browser()
	if got := b.session(); !slices.Equal(got.Methods, []string{"oidc", "token"}) || got.User != "" {
		t.Errorf("nobody: %+v", got)
	}
	login, _ := b.ask("GET", "/ui/oidc/login?return=/ui/violations%3Fpolicy%3Da%26b%3Dc", "")
	at, err := url.Parse(login.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	q := at.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("nonce") == "" || q.Get("state") == "" || q.Get("redirect_uri") != redirectURL {
		t.Errorf("the issuer is asked by %s", at)
	}
	if c := login.Header.Get("Set-Cookie"); !strings.Contains(c, "__Host-federator-login=") || !strings.Contains(c, "SameSite=Lax") || !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "Max-Age=600") || strings.Contains(c, q.Get("state")) {
		t.Errorf("cookie %q", c)
	}
	callback := b.begin(issuer.Ann, "/ui/violations?policy=a&b=c")
	answer, body := b.ask("GET", callback, "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
	wantHeaders(t, "callback", answer)
	if answer.StatusCode != http.StatusOK || !strings.Contains(body, `<meta http-equiv="refresh" content="0;url=/ui/violations?policy=a&amp;b=c">`) || strings.Contains(body, "<script") || strings.Contains(body, "style=") {
		t.Errorf("callback: %d %s", answer.StatusCode, body)
	}
	for _, c := range answer.Header.Values("Set-Cookie") {
		if !strings.Contains(c, "Max-Age=0") && (!strings.Contains(c, "SameSite=Strict") || !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "Secure")) {
			t.Errorf("cookie %q", c)
		}
	}
	got := b.session()
	if got.User != userPrefix+issuer.Ann || !got.CanWrite || got.CannotWriteWhy != "" || got.Expires != "" {
		t.Errorf("session %+v", got)
	}
	if answer, text := b.ask("GET", "/query/v1/whoami", ""); text != userPrefix+issuer.Ann {
		t.Errorf("a query: %d %s", answer.StatusCode, text)
	}
	again, text := b.ask("GET", callback, "", "Sec-Fetch-Site: cross-site")
	if again.StatusCode != http.StatusBadRequest || len(again.Cookies()) > 0 {
		t.Errorf("a callback counts twice: %d %s", again.StatusCode, text)
	}
	if got := b.session("Sec-Fetch-Site: cross-site"); got.User != "" {
		t.Errorf("for another site: %+v", got)
	}
	if answer, _ := b.ask("DELETE", "/ui/session", ""); answer.StatusCode != http.StatusNoContent || b.session().User != "" {
		t.Error("log-out does not end it")
	}
}

func TestOIDC_RefusesWhatItHasNotBegun(t *testing.T) {
	s := start(t, withOIDC)
	mine, theirs := s.browser(), s.browser()
	callback := mine.begin(issuer.Ann, "/ui/")
	theirs.begin(issuer.Bob, "/ui/")
	for what, c := range map[string]struct {
		b    *browser
		path string
		code int
	}{
		"without a cookie":       {s.browser(), callback, 400},
		"of another browser":     {theirs, callback, 400},
		"without state":          {mine, "/ui/oidc/callback?code=x", 400},
		"with another state":     {mine, callback + "x", 400},
		"refused by the issuer":  {s.browser(), "/ui/oidc/callback?error=access_denied&state=STATE", 403},
		"with a code of nothing": {s.browser(), "/ui/oidc/callback?code=x&state=STATE", 502},
	} {
		path := c.path
		if strings.Contains(path, "STATE") {
			answer, _ := c.b.ask("GET", "/ui/oidc/login", "")
			at, err := url.Parse(answer.Header.Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			path = strings.ReplaceAll(path, "STATE", at.Query().Get("state"))
		}
		answer, body := c.b.ask("GET", path, "", "Sec-Fetch-Site: cross-site")
		wantHeaders(t, what, answer)
		if answer.StatusCode != c.code || !strings.Contains(body, "You are not logged in") {
			t.Errorf("%s: %d %s", what, answer.StatusCode, body)
		}
		for _, cookie := range answer.Cookies() {
			if cookie.MaxAge >= 0 {
				t.Errorf("%s: cookie %v", what, cookie)
			}
		}
	}
	for _, site := range []string{"cross-site", "same-site"} {
		answer, body := mine.ask("GET", "/ui/oidc/login", "", "Sec-Fetch-Site: "+site)
		wantStatus(t, "begun by "+site, answer, body, http.StatusForbidden, "")
	}
	for _, back := range []string{"https://evil.example", "//evil.example/ui/", "/query/v1/count"} {
		if answer, body := mine.ask("GET", "/ui/oidc/login?return="+url.QueryEscape(back), ""); answer.StatusCode != http.StatusBadRequest || answer.Header.Get("Location") != "" {
			t.Errorf("return to %s: %d %s", back, answer.StatusCode, body)
		}
	}
	answer, body := mine.ask("POST", "/ui/oidc/login", "{}")
	wantStatus(t, "POST", answer, body, http.StatusMethodNotAllowed, "")
	answer, body = mine.ask("POST", "/ui/oidc/callback", "{}")
	wantStatus(t, "POST", answer, body, http.StatusMethodNotAllowed, "")
}

// TestOIDC_HubDecides: an ID token that the hub does not accept makes no session.
func TestOIDC_HubDecides(t *testing.T) {
	s := start(t, func(o *setup) {
		withOIDC(o)
		o.api.Authentication.HubTokens[0].Audience = "another" // so that it is reviewed as one for federator
	})
	b := s.browser()
	answer, body := b.ask("GET", b.begin(issuer.Ann, "/ui/"), "", "Sec-Fetch-Site: cross-site")
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(body, "The hub does not accept") || b.session().User != "" {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}

// TestOIDC_RenewsSessions: a token that expires is renewed once, however many requests come at a time, and the browser gets
// the new one.
func TestOIDC_RenewsSessions(t *testing.T) {
	var later atomic.Int64
	s := start(t, func(o *setup) {
		withOIDC(o)
		o.ui.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	b := s.browser()
	b.logInAs(issuer.Ann)
	before := oidcIssuer.Calls("/oauth/token")
	if answer, text := b.ask("GET", "/query/v1/whoami", ""); text != userPrefix+issuer.Ann || len(answer.Cookies()) > 0 {
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
	later.Store(int64(time.Hour - 30*time.Second))
	old := b.client.Jar.Cookies(&url.URL{Scheme: "https", Host: s.Address, Path: "/"})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if answer, text := b.ask("GET", "/query/v1/whoami", ""); text != userPrefix+issuer.Ann {
				t.Errorf("%d %s", answer.StatusCode, text)
			}
		})
	}
	group.Wait()
	if n := oidcIssuer.Calls("/oauth/token") - before; n != 1 {
		t.Errorf("renewed %d times", n)
	}
	late := s.browser() // a request that was sent with the old cookies
	late.client.Jar.SetCookies(&url.URL{Scheme: "https", Host: s.Address, Path: "/"}, old)
	if answer, text := late.ask("GET", "/query/v1/whoami", ""); text != userPrefix+issuer.Ann || len(answer.Cookies()) == 0 {
		t.Errorf("with the old cookies: %d %s", answer.StatusCode, text)
	}
	if n := oidcIssuer.Calls("/oauth/token") - before; n != 1 {
		t.Errorf("renewed %d times", n)
	}
	if answer, _ := b.ask("GET", "/query/v1/whoami", ""); answer.StatusCode != http.StatusOK {
		t.Errorf("with the new cookies: %d", answer.StatusCode)
	}
}

// TestOIDC_EndsWhatTheIssuerEnds: a refresh token that the issuer refuses ends the session; an issuer that is away
// does not.
func TestOIDC_EndsWhatTheIssuerEnds(t *testing.T) {
	replica := func() *server {
		return start(t, func(o *setup) {
			withOIDC(o)
			o.ui.Key = []byte("0123456789abcdef0123456789abcdef")
		})
	}
	b := replica().browser()
	b.logInAs(issuer.Bob)
	refresh := b.refreshCookie()
	if refresh == "" {
		t.Fatal("no refresh token")
	}
	header := "Cookie: " + refresh // that of the session has expired
	oidcIssuer.SetDown(true)
	away := replica().browser()
	answer, body := away.ask("GET", "/query/v1/whoami", "", header)
	oidcIssuer.SetDown(false)
	wantStatus(t, "while the issuer is away", answer, body, http.StatusServiceUnavailable, "does not answer")
	if len(answer.Cookies()) > 0 {
		t.Errorf("an issuer that is away ends the session: %v", answer.Cookies())
	}
	answer, body = replica().browser().ask("GET", "/query/v1/whoami", "", header)
	if body != userPrefix+issuer.Bob || len(answer.Cookies()) == 0 {
		t.Errorf("with a refresh token only: %d %s", answer.StatusCode, body)
	}
	// The issuer takes a refresh token once.
	answer, body = replica().browser().ask("GET", "/query/v1/whoami", "", header)
	wantStatus(t, "with a refresh token that was used", answer, body, http.StatusUnauthorized, "")
	if cookies := answer.Cookies(); len(cookies) == 0 || cookies[0].MaxAge >= 0 {
		t.Errorf("the session is not ended: %v", cookies)
	}
}

// TestOIDC_LogOutRevokes: after a log-out the issuer takes the refresh token from nobody; an issuer that is away keeps
// nobody logged in.
func TestOIDC_LogOutRevokes(t *testing.T) {
	replica := func() *server {
		return start(t, func(o *setup) {
			withOIDC(o)
			o.ui.Key = []byte("0123456789abcdef0123456789abcdef")
		})
	}
	for _, away := range []bool{false, true} {
		b := replica().browser()
		b.logInAs(issuer.Bob)
		stolen := b.refreshCookie()
		before := oidcIssuer.Calls("/revoke")
		oidcIssuer.SetDown(away)
		answer, body := b.ask("DELETE", "/ui/session", "")
		oidcIssuer.SetDown(false)
		if answer.StatusCode != http.StatusNoContent || b.session().User != "" || b.refreshCookie() != "" {
			t.Errorf("issuer away %v: %d %s, still %s", away, answer.StatusCode, body, b.session().User)
		}
		if n := oidcIssuer.Calls("/revoke") - before; n != 1 {
			t.Errorf("issuer away %v: asked %d times to revoke", away, n)
		}
		if !b.s.log.has("the refresh token of a log-out", map[bool]string{false: "level=INFO", true: "level=WARN"}[away]) {
			t.Errorf("issuer away %v: what came of it is not in the log", away)
		}
		_, body = replica().browser().ask("GET", "/query/v1/whoami", "", "Cookie: "+stolen)
		if (body == userPrefix+issuer.Bob) != away {
			t.Errorf("issuer away %v: the refresh token is worth %s", away, body)
		}
	}
	// A session by a token has nothing to revoke.
	b, before := replica().browser(), oidcIssuer.Calls("/revoke")
	b.logIn(tokenFor(t, "tess", "federator"))
	if answer, _ := b.ask("DELETE", "/ui/session", ""); answer.StatusCode != http.StatusNoContent || oidcIssuer.Calls("/revoke") != before {
		t.Errorf("of a token: %d", answer.StatusCode)
	}
}

// refreshCookie is the cookie of the refresh token, as a header has it; "" without one.
// TestOIDC_LogOutDoesNotWaitForTheIssuer: the browser has no cookies any more before the issuer has said anything, so
// that a tab which is closed meanwhile is logged out, too.
func TestOIDC_LogOutDoesNotWaitForTheIssuer(t *testing.T) {
	b := start(t, withOIDC).browser()
	b.logInAs(issuer.Bob)
	_, release := oidcIssuer.Hold("/revoke")
	defer release()
	before := oidcIssuer.Calls("/revoke")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+b.s.Address+"/ui/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := b.client.Do(r) // returns with the header
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent || b.refreshCookie() != "" || b.s.log.has("the refresh token of a log-out") {
		t.Errorf("%s, cookie %q, and the issuer was waited for: %v", answer.Status, b.refreshCookie(), b.s.log.has("the refresh token of a log-out"))
	}
	release()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Error(err)
	}
	if n := oidcIssuer.Calls("/revoke") - before; n != 1 || !b.s.log.has("level=INFO", "the refresh token of a log-out") {
		t.Errorf("asked %d times to revoke, or not revoked", n)
	}
}

// TestOIDC_LogOutEndsRenewalsUnderWay: a request of another tab, whose session is being renewed, brings nothing back.
func TestOIDC_LogOutEndsRenewalsUnderWay(t *testing.T) {
	var later atomic.Int64
	b := start(t, func(o *setup) {
		withOIDC(o)
		o.ui.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	}).browser()
	b.logInAs(issuer.Bob)
	later.Store(int64(time.Hour - 30*time.Second))
	renewed, release := oidcIssuer.Hold("/oauth/token")
	defer release()
	before := oidcIssuer.Calls("/revoke")
	var tab sync.WaitGroup
	tab.Go(func() { b.ask("GET", "/query/v1/whoami", "") })
	select {
	case <-renewed:
	case <-time.After(patience):
		t.Fatal("the session is not renewed")
	}
	if answer, body := b.ask("DELETE", "/ui/session", ""); answer.StatusCode != http.StatusNoContent {
		t.Errorf("log-out: %d %s", answer.StatusCode, body)
	}
	release()
	tab.Wait()
	if cookies := b.client.Jar.Cookies(&url.URL{Scheme: "https", Host: b.s.Address, Path: "/"}); len(cookies) > 0 || b.session().User != "" {
		t.Errorf("after the log-out there are %d cookies, of %q", len(cookies), b.session().User)
	}
	if n := oidcIssuer.Calls("/revoke") - before; n != 2 {
		t.Errorf("%d tokens were revoked, want the one of before and the one that came", n)
	}
}

func (b *browser) refreshCookie() string {
	var parts []string
	for _, c := range b.client.Jar.Cookies(&url.URL{Scheme: "https", Host: b.s.Address, Path: "/"}) {
		if strings.HasPrefix(c.Name, "__Host-federator-refresh") {
			parts = append(parts, c.Name+"="+c.Value)
		}
	}
	return strings.Join(parts, "; ")
}
