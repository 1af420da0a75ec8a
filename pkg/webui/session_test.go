package webui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

func TestSession_Local(t *testing.T) {
	s := start(t, func(o *setup) { o.local = true })
	b := s.browser()
	if got := b.session(); got.User != "" || got.CanWrite || got.Hub || got.Version != "v1.2.3" || !slices.Equal(got.Methods, []string{"token"}) {
		t.Errorf("nobody: %+v", got)
	}
	answer, body := b.ask("POST", "/ui/session", `{"token":"wrong"}`)
	wantStatus(t, "a wrong token", answer, body, http.StatusUnauthorized, "Unauthorized")
	if len(answer.Cookies()) > 0 {
		t.Error("a wrong token makes a session")
	}
	b.logIn(" " + s.Token() + "\n")
	if got := b.session(); got.User != queryapi.LocalUser || got.CanWrite || !strings.Contains(got.CannotWriteWhy, "no hub") || got.Expires != "" {
		t.Errorf("logged in: %+v", got)
	}
	if answer, body := b.ask("GET", "/query/v1/whoami", ""); answer.StatusCode != http.StatusOK || body != queryapi.LocalUser {
		t.Errorf("a query: %d %s", answer.StatusCode, body)
	}
	answer, body = b.ask("POST", "/ui/relay/stops", `{"scope":""}`)
	wantStatus(t, "a write without a hub", answer, body, http.StatusForbidden, "no hub")
	if answer, _ := b.ask("DELETE", "/ui/session", ""); answer.StatusCode != http.StatusNoContent {
		t.Errorf("log-out: %d", answer.StatusCode)
	}
	answer, body = b.ask("GET", "/query/v1/whoami", "")
	wantStatus(t, "after log-out", answer, body, http.StatusUnauthorized, "")
	if cookies := b.client.Jar.Cookies(&url.URL{Scheme: "https", Host: s.Address, Path: "/"}); len(cookies) > 0 {
		t.Errorf("log-out leaves %v", cookies)
	}
	if !s.log.has("logged in", "user="+queryapi.LocalUser) || !s.log.has("logged out", "user="+queryapi.LocalUser) || s.log.has(s.Token()) {
		t.Error("log-in and log-out are not in the log, or the token is")
	}
}

// TestSession_CountsForOwnPagesOnly: which requests a cookie is credentials of.
func TestSession_CountsForOwnPagesOnly(t *testing.T) {
	s := start(t, func(o *setup) { o.local = true })
	b := s.browser()
	b.logIn(s.Token())
	for _, c := range []struct {
		site, extra string
		counts      bool
	}{
		{"same-origin", "", true},
		{"same-origin", "Sec-Fetch-Mode: navigate", true},
		{"same-site", "", false},
		{"cross-site", "", false},
		{"none", "", false},
		{"", "", false},
		{"Same-Origin", "", false},
		{"same-origin, none", "", false},
		{"cross-site", "Sec-Fetch-Mode: navigate", false},
		{"same-origin", "Authorization: Bearer wrong", false},
		{"same-origin", "Authorization: Basic YTpi", false},
	} {
		header := []string{"Sec-Fetch-Site: " + c.site}
		if c.extra != "" {
			header = append(header, c.extra)
		}
		answer, body := b.ask("GET", "/query/v1/whoami", "", header...)
		if c.counts != (answer.StatusCode == http.StatusOK) {
			t.Errorf("Sec-Fetch-Site %q, %s: %d %s", c.site, c.extra, answer.StatusCode, body)
		}
		if !c.counts {
			wantStatus(t, c.site, answer, body, http.StatusUnauthorized, "")
		}
		if strings.HasPrefix(c.extra, "Authorization: Basic") {
			continue
		}
		if got := b.session(header...); (got.User != "") != c.counts {
			t.Errorf("Sec-Fetch-Site %q, %s: session %+v", c.site, c.extra, got)
		}
	}
	for _, site := range []string{"same-site", "cross-site", "none", ""} {
		header := "Sec-Fetch-Site: " + site
		answer, body := b.ask("POST", "/ui/session", `{"token":"`+s.Token()+`"}`, header)
		wantStatus(t, "log-in from "+site, answer, body, http.StatusForbidden, "")
		answer, body = b.ask("DELETE", "/ui/session", "", header)
		wantStatus(t, "log-out from "+site, answer, body, http.StatusForbidden, "")
	}
	if got := b.session(); got.User == "" {
		t.Error("another site ended the session")
	}
}

func TestSession_RefusesBadBodies(t *testing.T) {
	s := start(t, func(o *setup) { o.local = true })
	b := s.browser()
	for body, code := range map[string]int{
		`{"token":""}`: 400, `{"token":"a b"}`: 400, `{"token":"a\n"}{}`: 400, `{"token":"ä"}`: 400, `{"token":1}`: 400, `{"tokens":"a"}`: 400, `[`: 400,
		`{"token":"` + strings.Repeat("a", 13<<10) + `"}`: 400, `{"token":"` + strings.Repeat("a", 65<<10) + `"}`: 413,
	} {
		answer, text := b.ask("POST", "/ui/session", body)
		wantStatus(t, body[:min(len(body), 20)], answer, text, code, "")
	}
	for _, header := range []string{"Content-Type: text/plain", "Content-Type: "} {
		answer, text := b.ask("POST", "/ui/session", `{"token":"a"}`, header)
		wantStatus(t, header, answer, text, http.StatusUnsupportedMediaType, "application/json")
	}
	answer, text := b.ask("POST", "/ui/session", `{"token":"a"}`, "Authorization: Bearer "+s.Token())
	wantStatus(t, "with credentials", answer, text, http.StatusBadRequest, "")
}

// TestSession_CookiesAreSafe: attributes, chunks, and what is not ours.
func TestSession_CookiesAreSafe(t *testing.T) {
	s := start(t, func(o *setup) { o.local = true })
	b := s.browser()
	body, _ := json.Marshal(map[string]string{"token": s.Token()})
	answer, _ := b.ask("POST", "/ui/session", string(body))
	line := answer.Header.Get("Set-Cookie")
	for _, want := range []string{"__Host-federator-session=1.", "; Path=/", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in %q", want, line)
		}
	}
	if strings.Contains(line, "Domain") || strings.Contains(line, "Max-Age") || strings.Contains(line, s.Token()) {
		t.Errorf("cookie %q", line)
	}
	good := answer.Cookies()[0].Value
	other := start(t, func(o *setup) { o.local = true })
	flipped := []byte(good)
	flipped[len(flipped)/2] ^= 1
	bare := s.browser()
	for what, value := range map[string]string{
		"none": "", "cut": good[:len(good)-3], "flipped": string(flipped), "of more chunks": "2" + good[1:], "of no chunks": "0" + good[1:], "no number": good[2:],
		"of many": "99" + good[1:], "plain": "1." + s.Token(), "twice": good + "; __Host-federator-session=" + good,
	} {
		answer, text := bare.ask("GET", "/query/v1/whoami", "", "Cookie: __Host-federator-session="+value)
		wantStatus(t, what, answer, text, http.StatusUnauthorized, "")
	}
	answer, text := bare.ask("GET", "/query/v1/whoami", "", "Cookie: __Host-federator-refresh="+good)
	wantStatus(t, "under another name", answer, text, http.StatusUnauthorized, "")
	answer, text = other.browser().ask("GET", "/query/v1/whoami", "", "Cookie: __Host-federator-session="+good)
	wantStatus(t, "of another process, without a key", answer, text, http.StatusUnauthorized, "")
}

func TestSession_ReplicasShareAKey(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	with := func(o *setup) { o.ui.Key = key }
	one, two := start(t, with), start(t, with)
	token := tokenFor(t, "tess", "federator")
	body, _ := json.Marshal(map[string]string{"token": token})
	answer, text := one.browser().ask("POST", "/ui/session", string(body))
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", answer.StatusCode, text)
	}
	c := answer.Cookies()[0]
	if c.MaxAge < 3500 || c.MaxAge > 3600 {
		t.Errorf("Max-Age %d of a token of an hour", c.MaxAge)
	}
	b := two.browser()
	if answer, text := b.ask("GET", "/query/v1/whoami", "", "Cookie: "+c.Name+"="+c.Value); text != queryserver.UserOf("tess") {
		t.Errorf("another replica: %d %s", answer.StatusCode, text)
	}
	got := b.session("Cookie: " + c.Name + "=" + c.Value)
	if got.User != queryserver.UserOf("tess") || got.CanWrite || !got.Hub || !strings.Contains(got.CannotWriteWhy, "you may look only") || !slices.Contains(got.Groups, "system:authenticated") {
		t.Errorf("session %+v", got)
	}
	if at, err := time.Parse(time.RFC3339, got.Expires); err != nil || time.Until(at) > time.Hour {
		t.Errorf("expires %q", got.Expires)
	}
	if got := b.session("Authorization: Bearer " + token); got.User != queryserver.UserOf("tess") || !slices.Equal(got.Methods, []string{"proxy"}) {
		t.Errorf("behind a proxy that logs in: %+v", got)
	}
}

// TestSession_EndsWithItsToken: an expired token is not sent to the hub, and one that the hub does not accept any more
// ends the session.
func TestSession_EndsWithItsToken(t *testing.T) {
	var later time.Duration
	s := start(t, func(o *setup) { o.ui.Now = func() time.Time { return time.Now().Add(later) } })
	b := s.browser()
	b.logIn(tokenFor(t, "brief", "federator"))
	if got := b.session(); got.User != queryserver.UserOf("brief") {
		t.Fatalf("session %+v", got)
	}
	later = 2 * time.Hour
	if got := b.session(); got.User != "" {
		t.Errorf("after its token has expired: %+v", got)
	}
	answer, text := b.ask("GET", "/query/v1/whoami", "")
	wantStatus(t, "after its token has expired", answer, text, http.StatusUnauthorized, "")
}

// TestSession_RefusalsKeepTheConnection: of a browser, which has one for all its tabs; those of other clients end.
func TestSession_RefusalsKeepTheConnection(t *testing.T) {
	s := start(t, func(o *setup) { o.local = true })
	for site, kept := range map[string]bool{"same-origin": true, "": false} {
		b := s.browser()
		// ask reports whether a refused request was sent on a connection that was kept.
		ask := func() (reused bool) {
			trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://"+s.Address+"/query/v1/whoami", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Sec-Fetch-Site", site)
			if site == "" {
				r.Header.Del("Sec-Fetch-Site")
			}
			answer, err := b.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusUnauthorized || answer.ProtoMajor != 2 {
				t.Fatalf("%s %s", answer.Status, answer.Proto)
			}
			return reused
		}
		ask()
		if !kept { // the end of the connection has to arrive
			until(t, "a connection without Sec-Fetch-Site ends", func() bool { return !ask() })
			continue
		}
		for range 20 {
			if !ask() {
				t.Errorf("Sec-Fetch-Site %q: the connection is not kept", site)
			}
		}
	}
}

// TestSession_LargeTokensAreInChunks: one of 10 KB takes several cookies, and a short one leaves none of
// them.
func TestSession_LargeTokensAreInChunks(t *testing.T) {
	s := start(t, nil)
	b := s.browser()
	audiences := []string{"federator"}
	for i := range 80 {
		audiences = append(audiences, fmt.Sprint(strings.Repeat("audience", 10), i))
	}
	large := tokenFor(t, "large", audiences...)
	if len(large) < 8<<10 {
		t.Fatalf("a token of %d bytes", len(large))
	}
	at := &url.URL{Scheme: "https", Host: s.Address, Path: "/"}
	for _, c := range []struct {
		token   string
		cookies int
	}{{large, 4}, {tokenFor(t, "large", "federator"), 1}} {
		b.logIn(c.token)
		if n := len(b.client.Jar.Cookies(at)); n != c.cookies {
			t.Errorf("%d bytes: %d cookies, want %d", len(c.token), n, c.cookies)
		}
		if answer, text := b.ask("GET", "/query/v1/whoami", ""); text != queryserver.UserOf("large") {
			t.Errorf("%d bytes: %d %s", len(c.token), answer.StatusCode, text)
		}
	}
}

// TestSession_ClientCertificate: whom a connection's certificate names is logged in, but where a session says who it is.
func TestSession_ClientCertificate(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, hub(t).RESTConfig().CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *setup) { o.api.Authentication.ClientCAFile = ca })
	b := s.browser(queryserver.Certificate(t, hub(t), "carl", time.Hour, "sre"))
	got := b.session()
	if got.User != "carl" || !slices.Equal(got.Groups, []string{"sre", "system:authenticated"}) || got.CanWrite || !strings.Contains(got.CannotWriteWhy, "client certificate") || !slices.Equal(got.Methods, []string{"proxy"}) {
		t.Errorf("session %+v", got)
	}
	if at, err := time.Parse(time.RFC3339, got.Expires); err != nil || time.Until(at) > time.Hour || time.Until(at) < time.Minute {
		t.Errorf("it ends at %q", got.Expires)
	}
	if answer, text := b.ask("GET", "/query/v1/whoami", ""); text != got.User {
		t.Errorf("to the API it is %d %s", answer.StatusCode, text)
	}
	for _, site := range []string{"cross-site", "same-site", "none", ""} {
		if got := b.session("Sec-Fetch-Site: " + site); got.User != "" {
			t.Errorf("for a page of Sec-Fetch-Site %q: %+v", site, got)
		}
	}
	answer, body := b.ask("DELETE", "/ui/session", "")
	wantStatus(t, "log-out", answer, body, http.StatusBadRequest, "client certificate")

	token := tokenFor(t, "tess", "federator")
	with := "Authorization: Bearer " + token
	if _, text := b.ask("GET", "/query/v1/whoami", "", with); text != b.session(with).User || text != "carl" {
		t.Errorf("with a token beside: %s to the API, %s on the page", text, b.session(with).User)
	}
	b.logIn(token)
	if _, text := b.ask("GET", "/query/v1/whoami", ""); text != b.session().User || text != queryserver.UserOf("tess") {
		t.Errorf("with a session beside: %s to the API, %s on the page", text, b.session().User)
	}
	if answer, body := b.ask("DELETE", "/ui/session", ""); answer.StatusCode != http.StatusNoContent || b.session().User != "carl" {
		t.Errorf("log-out of the session: %d %s, then %s", answer.StatusCode, body, b.session().User)
	}
	for what, other := range map[string]*browser{
		"expired": s.browser(queryserver.Certificate(t, hub(t), "carl", -time.Hour)), "not trusted": start(t, nil).browser(queryserver.Certificate(t, hub(t), "carl", time.Hour)), "none": s.browser(),
	} {
		if got := other.session(); got.User != "" {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
