package queryapi_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube/tcpproxy"
	"federator.dev/federator/test/queryserver"
)

func TestAuthentication_TokensAreReviewedByTheHub(t *testing.T) {
	s := start(t, nil)
	good := tokenFor(t, "tess", "federator")
	if resp, body := s.get(t, "/query/v1/whoami", good); resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, queryserver.UserOf("tess")+" ") || !strings.Contains(body, "system:authenticated") {
		t.Errorf("a token for federator: %d %q", resp.StatusCode, body)
	}
	for what, token := range map[string]string{
		"no token":                     "",
		"a token for the API server":   tokenFor(t, "tess", ""),
		"a token for another audience": tokenFor(t, "tess", "vault"),
		"no token at all":              "x.y.z",
		"a token that was cut":         good[:len(good)-4],
	} {
		resp, body := s.get(t, "/query/v1/whoami", token)
		wantStatus(t, what, resp, body, http.StatusUnauthorized)
	}
	resp, body := s.get(t, "/nothing/here", "")
	wantStatus(t, "a stranger asks for what is not there", resp, body, http.StatusUnauthorized)
}

func TestAuthentication_AudiencesCanBeChosen(t *testing.T) {
	s := start(t, func(o *queryapi.Options) { o.Authentication.Audiences = []string{"blue", "green"} })
	if resp, body := s.get(t, "/query/v1/whoami", tokenFor(t, "aude", "green")); resp.StatusCode != http.StatusOK {
		t.Errorf("one of the audiences: %d %q", resp.StatusCode, body)
	}
	resp, body := s.get(t, "/query/v1/whoami", tokenFor(t, "aude", "federator"))
	wantStatus(t, "another audience", resp, body, http.StatusUnauthorized)
}

func TestAuthentication_HubThatIsAwayIsNoRefusal(t *testing.T) {
	s := start(t, nil)
	token := tokenFor(t, "away", "federator")
	hub.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut})
	defer hub.Proxy.Set(tcpproxy.Mode{})
	resp, body := s.get(t, "/query/v1/whoami", token)
	wantStatus(t, "without a hub", resp, body, http.StatusServiceUnavailable)
	hub.Proxy.Set(tcpproxy.Mode{})
	until(t, "the hub is back", func() bool {
		resp, _ := s.get(t, "/query/v1/whoami", token)
		return resp.StatusCode == http.StatusOK
	})
}

func TestAuthentication_ReviewsOfTokensAreKept(t *testing.T) {
	for _, c := range []struct {
		ttl  time.Duration
		kept bool
	}{{10 * time.Second, true}, {time.Nanosecond, false}} {
		s := start(t, func(o *queryapi.Options) { o.Authentication.TokenTTL = c.ttl })
		token := tokenFor(t, "kept", "federator")
		began := time.Now()
		if resp, body := s.get(t, "/query/v1/whoami", token); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		hub.Proxy.Set(tcpproxy.Mode{State: tcpproxy.Cut})
		resp, _ := s.get(t, "/query/v1/whoami", token)
		took := time.Since(began)
		hub.Proxy.Set(tcpproxy.Mode{})
		if kept := resp.StatusCode == http.StatusOK; kept != c.kept && !(c.kept && took > c.ttl) {
			t.Errorf("kept for %v: code %d after %v", c.ttl, resp.StatusCode, took)
		}
	}
}

func TestAuthentication_HubThatDoesNotLetUsReviewIsOurError(t *testing.T) {
	cred, err := hub.IssueCert("nobody-special", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *queryapi.Options) { o.Hub = hub.RESTConfigWith(cred) })
	resp, body := s.get(t, "/query/v1/whoami", tokenFor(t, "tess", "federator"))
	wantStatus(t, "federator may not review tokens", resp, body, http.StatusInternalServerError)
}

// certFile writes the hub's authority to a file.
func caFile(t *testing.T, pem []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func clientCert(t *testing.T, user string, ttl time.Duration, groups ...string) tls.Certificate {
	t.Helper()
	return queryserver.Certificate(t, hub, user, ttl, groups...)
}

func TestAuthentication_ClientCertificatesNameUsersAndGroups(t *testing.T) {
	s := start(t, func(o *queryapi.Options) { o.Authentication.ClientCAFile = caFile(t, hub.RESTConfig().CAData) })
	carl := s.client(t, clientCert(t, "carl", time.Hour, "sre"))
	if resp, body := s.ask(t, carl, "GET", "/query/v1/whoami", "", nil, nil); resp.StatusCode != http.StatusOK || body != "carl sre,system:authenticated" {
		t.Errorf("carl: %d %q", resp.StatusCode, body)
	}
	old := s.client(t, clientCert(t, "carl", -time.Hour))
	resp, body := s.ask(t, old, "GET", "/query/v1/whoami", "", nil, nil)
	wantStatus(t, "a certificate that has expired", resp, body, http.StatusUnauthorized)
	if resp, body := s.get(t, "/query/v1/whoami", tokenFor(t, "tess", "federator")); resp.StatusCode != http.StatusOK {
		t.Errorf("a token beside: %d %s", resp.StatusCode, body)
	}
}

func TestAuthentication_ClientCertificatesAreNothingWithoutAnAuthority(t *testing.T) {
	s := start(t, nil)
	carl := s.client(t, clientCert(t, "carl", time.Hour))
	resp, body := s.ask(t, carl, "GET", "/query/v1/whoami", "", nil, nil)
	wantStatus(t, "no authority is trusted", resp, body, http.StatusUnauthorized)
}

func TestAuthentication_AuthoritiesOfClientsAreReadAgain(t *testing.T) {
	other := start(t, nil) // its own authority stands for a wrong one
	file := caFile(t, other.CertificateAuthority())
	s := start(t, func(o *queryapi.Options) { o.Authentication.ClientCAFile = file })
	cert := clientCert(t, "carl", time.Hour)
	resp, body := s.ask(t, s.client(t, cert), "GET", "/query/v1/whoami", "", nil, nil)
	wantStatus(t, "another authority", resp, body, http.StatusUnauthorized)
	if err := os.WriteFile(file, hub.RESTConfig().CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the new authority is believed", func() bool {
		c := s.client(t, cert)
		defer c.CloseIdleConnections()
		resp, _ := s.ask(t, c, "GET", "/query/v1/whoami", "", nil, nil)
		return resp.StatusCode == http.StatusOK
	})
}

func TestAuthentication_ImpersonationIsRefused(t *testing.T) {
	s := start(t, nil)
	for _, header := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"} {
		resp, body := s.ask(t, s.client(t), "GET", "/query/v1/whoami", tokenFor(t, "imp", "federator"), http.Header{header: {"root"}}, nil)
		wantStatus(t, header, resp, body, http.StatusForbidden)
	}
}

func TestAuthentication_LocalServerKnowsOneToken(t *testing.T) {
	s := start(t, func(o *queryapi.Options) { o.Hub, o.Local = nil, true })
	if resp, body := s.get(t, "/query/v1/whoami", s.Token()); resp.StatusCode != http.StatusOK || body != queryapi.LocalUser+" system:authenticated" {
		t.Errorf("the bearer of the token: %d %q", resp.StatusCode, body)
	}
	for what, token := range map[string]string{"no token": "", "another": s.Token() + "x", "a token of the hub": tokenFor(t, "tess", "federator")} {
		resp, body := s.get(t, "/query/v1/whoami", token)
		wantStatus(t, what, resp, body, http.StatusUnauthorized)
	}
	if again := start(t, func(o *queryapi.Options) { o.Hub, o.Local = nil, true }); again.Token() == s.Token() {
		t.Error("two servers have one token")
	}
}

func TestAuthentication_LocalServerIsForThisMachineOnly(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := valid(t)
	o.Hub, o.Local, o.Listener = (*rest.Config)(nil), true, l
	if _, err := queryapi.New(o); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("%v, want it to name the address", err)
	}
}

func TestAuthentication_UnknownTokensDoNotFloodTheHub(t *testing.T) {
	var now, most, all atomic.Int64
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		all.Add(1)
		<-release
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":false}}`)
	}))
	defer slow.Close()
	s := start(t, func(o *queryapi.Options) {
		o.Hub, o.Authentication.Parallel = &rest.Config{Host: slow.URL}, 2
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			resp, body := s.get(t, "/query/v1/whoami", fmt.Sprint("guess-", i))
			wantStatus(t, "a guess", resp, body, http.StatusUnauthorized)
		})
	}
	until(t, "two reviews are in flight", func() bool { return now.Load() == 2 })
	close(release)
	wg.Wait()
	if most.Load() != 2 || all.Load() != 8 {
		t.Errorf("%d reviews at once, %d in all; want 2 and 8", most.Load(), all.Load())
	}
}

// TestAuthentication_UnknownTokensDoNotDelayKnownOnes has strangers wait for a slow hub, with as many
// tokens as may be reviewed at once and more. Who has logged in before is let in.
func TestAuthentication_UnknownTokensDoNotDelayKnownOnes(t *testing.T) {
	var guesses, known, most atomic.Int64
	release, held := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(review.Spec.Token, "guess-") {
			guesses.Add(1)
			defer guesses.Add(-1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
			io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":false}}`)
			return
		}
		n := known.Add(1)
		defer known.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if hold.Load() {
			select {
			case <-held:
			case <-r.Context().Done():
			}
		}
		io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"tess"},"audiences":["federator"]}}`)
	}))
	defer slow.Close()
	s := start(t, func(o *queryapi.Options) {
		o.Hub, o.Authentication.Parallel, o.Authentication.TokenTTL = &rest.Config{Host: slow.URL}, 2, time.Nanosecond
	})
	logIn := func(i int) {
		if resp, body := s.get(t, "/query/v1/whoami", fmt.Sprint("known-", i)); resp.StatusCode != http.StatusOK {
			t.Errorf("who is known: %d %s", resp.StatusCode, body)
		}
	}
	for i := range 4 {
		logIn(i)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	for i := range 8 {
		wg.Go(func() { s.get(t, "/query/v1/whoami", fmt.Sprint("guess-", i)) })
	}
	until(t, "strangers take all their slots", func() bool { return guesses.Load() >= 2 })
	logIn(0)
	hold.Store(true)
	var in sync.WaitGroup
	for i := range 4 {
		in.Go(func() { logIn(i) })
	}
	until(t, "reviews of two known users are under way", func() bool { return known.Load() == 2 })
	close(held)
	in.Wait()
	if most.Load() != 2 {
		t.Errorf("%d reviews of who is known at once, want 2", most.Load())
	}
}
