package queryapi_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// local makes a server without a hub, which most limits do not need.
func local(o *queryapi.Options) { o.Hub, o.Local = nil, true }

func TestServer_SlowClientsAreClosed(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Limits.Header = time.Second // of the handshake, too
	})
	dial := func() (c net.Conn) {
		until(t, "a handshake in time", func() bool {
			var err error
			c, err = tls.Dial("tcp", s.Address, &tls.Config{RootCAs: s.Roots, NextProtos: []string{"http/1.1"}})
			return err == nil
		})
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	var clients sync.WaitGroup
	for what, start := range map[string]string{
		"nothing is sent":           "",
		"the header does not end":   "GET /fleet/version HTTP/1.1\r\nHost: x\r\nA: ",
		"the body does not come":    "POST /fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.Token() + "\r\nContent-Length: 100\r\n\r\n{",
		"a body with a GET, halted": "GET /fleet/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.Token() + "\r\nContent-Length: 100\r\n\r\n{",
	} {
		c := dial()
		clients.Go(func() {
			defer c.Close()
			if _, err := io.WriteString(c, start); err != nil {
				return // closed already
			}
			answer, err := io.ReadAll(c) // ends when the server closes
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: still open after %v", what, patience)
			}
			if strings.Contains(string(answer), "HTTP/1.1 2") {
				t.Errorf("%s: answered %q", what, answer)
			}
		})
	}
	defer clients.Wait()
	raw, err := net.Dial("tcp", s.Address) // no TLS handshake
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(patience))
	if _, err := raw.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a handshake: %v", err)
	}
}

func TestServer_SizesAreBounded(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Limits.HeaderBytes, o.Limits.BodyBytes = 8<<10, 1000
	})
	const reviews = "/fleet/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for name, c := range map[string]*http.Client{"HTTP/2": s.client(t), "HTTP/1.1": s.plain(t)} {
		r, err := http.NewRequest(http.MethodGet, "https://"+s.Address+"/fleet/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Large", strings.Repeat("a", 64<<10))
		resp, err := c.Do(r) // HTTP/2 clients may give up themselves: the server says what it takes
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s, header of 64 KiB: %d", name, resp.StatusCode)
			}
		} else if name == "HTTP/1.1" {
			t.Error(err)
		}
		resp, body := s.ask(t, c, "POST", reviews, s.Token(), nil, make([]byte, 1001))
		wantStatus(t, name+", a body of 1,001 bytes", resp, body, http.StatusRequestEntityTooLarge)
		resp, body = s.ask(t, c, "POST", reviews, s.Token(), nil, make([]byte, 1000))
		wantStatus(t, name+", a body of 1,000 bytes", resp, body, http.StatusBadRequest)
		resp, body = s.ask(t, c, "GET", "/fleet/version", s.Token(), nil, []byte("{}"))
		wantStatus(t, name+", a body with a GET", resp, body, http.StatusBadRequest)
		resp, body = s.ask(t, c, "GET", "/fleet/"+strings.Repeat("a", 5000), s.Token(), nil, nil)
		wantStatus(t, name+", a path of 5,000 bytes", resp, body, http.StatusRequestURITooLong)
		resp, body = s.ask(t, c, "GET", "/fleet/%2e%2e/x", s.Token(), nil, nil)
		wantStatus(t, name+", a path with dots", resp, body, http.StatusBadRequest)
	}
	r, err := http.NewRequest(http.MethodPost, "https://"+s.Address+reviews, io.MultiReader(strings.NewReader(strings.Repeat(" ", 2000)))) // of unknown length
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token())
	resp, err := s.plain(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	wantStatus(t, "a body of unknown length", resp, string(body), http.StatusRequestEntityTooLarge)
}

// plain is a client of HTTP/1.1.
func (s *server) plain(t *testing.T) *http.Client {
	c := s.client(t)
	c.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	c.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	return c
}

// blocked is a query that responds when it is released.
type blocked struct {
	entered, release chan struct{}
	left             chan error
}

func newBlocked() *blocked {
	return &blocked{entered: make(chan struct{}, 100), release: make(chan struct{}), left: make(chan error, 100)}
}

func (b *blocked) Serve(w http.ResponseWriter, r *http.Request, _ queryapi.Caller) error {
	b.entered <- struct{}{}
	select {
	case <-b.release:
	case <-r.Context().Done():
		b.left <- context.Cause(r.Context())
		return r.Context().Err()
	}
	_, err := fmt.Fprint(w, "done")
	b.left <- err
	return nil
}

// hasty begins to answer when its time is over, and takes a while.
type hasty struct{}

func (hasty) Serve(w http.ResponseWriter, r *http.Request, _ queryapi.Caller) error {
	<-r.Context().Done()
	w.WriteHeader(http.StatusGatewayTimeout)
	time.Sleep(time.Millisecond)
	_, _ = fmt.Fprint(w, "late")
	return nil
}

// TestServer_TimeoutIsAnsweredOnce: a late handler and the timeout filter do not interrupt
// each other's response.
func TestServer_TimeoutIsAnsweredOnce(t *testing.T) {
	s := start(t, with("wait", hasty{}, func(o *queryapi.Options) { o.Limits.Request = 5 * time.Millisecond }))
	for range 50 {
		resp, body := s.get(t, "/query/v1/wait", s.Token())
		wantStatus(t, "a late answer", resp, body, http.StatusGatewayTimeout)
	}
}

func with(name string, q queryapi.Query, more func(*queryapi.Options)) func(*queryapi.Options) {
	return func(o *queryapi.Options) {
		local(o)
		o.Queries[name] = q
		if more != nil {
			more(o)
		}
	}
}

func TestServer_RequestsAreBoundedInTime(t *testing.T) {
	b := newBlocked()
	s := start(t, with("wait", b, func(o *queryapi.Options) { o.Limits.Request = 100 * time.Millisecond }))
	resp, body := s.get(t, "/query/v1/wait", s.Token())
	wantStatus(t, "a slow answer", resp, body, http.StatusGatewayTimeout)
	if err := <-b.left; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the question ended by %v", err)
	}
	b = newBlocked()
	s = start(t, with("wait", b, nil))
	resp, body = s.get(t, "/query/v1/wait?timeout=50ms", s.Token())
	wantStatus(t, "a caller in a hurry", resp, body, http.StatusGatewayTimeout)
	resp, body = s.get(t, "/query/v1/wait?timeout=soon", s.Token())
	wantStatus(t, "a timeout that is none", resp, body, http.StatusBadRequest)
}

func TestServer_DisconnectsClientsThatStopReading(t *testing.T) {
	entered, left := make(chan error, 1), make(chan error, 1)
	flood := question(func(w http.ResponseWriter, _ *http.Request, _ queryapi.Caller) error {
		entered <- nil
		block := make([]byte, 64<<10)
		for {
			if _, err := w.Write(block); err != nil {
				left <- err
				return nil
			}
		}
	})
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		s := start(t, with("flood", flood, func(o *queryapi.Options) { o.Limits.Request = 100 * time.Millisecond }))
		c := s.plain(t)
		if protocol == "HTTP/2" {
			c = s.client(t)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address+"/query/v1/flood", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Token())
		resp, failed := c.Do(r) // which fails if the client reads the headers after it is disconnected
		for what, event := range map[string]<-chan error{"is not answered": entered, "holds its request": left} {
			select {
			case <-event: // though nobody reads
			case <-time.After(patience):
				t.Fatalf("%s: a client that does not read %s: %v", protocol, what, failed)
			}
		}
		if failed == nil {
			resp.Body.Close()
		}
	}
}

func TestServer_RequestsAreBoundedInNumber(t *testing.T) {
	b := newBlocked()
	s := start(t, with("wait", b, func(o *queryapi.Options) { o.Fairness.MaxInFlight = 2 }))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if resp, body := s.get(t, "/query/v1/wait", s.Token()); resp.StatusCode != http.StatusOK {
				t.Errorf("one of two: %d %s", resp.StatusCode, body)
			}
		})
	}
	<-b.entered
	<-b.entered
	resp, body := s.get(t, "/query/v1/wait", s.Token())
	status := wantStatus(t, "the third of two", resp, body, http.StatusTooManyRequests)
	if resp.Header.Get("Retry-After") == "" || status.Details == nil || status.Details.RetryAfterSeconds < 1 {
		t.Errorf("no time to retry after: %+v", status)
	}
	close(b.release)
	wg.Wait()
	until(t, "there is room when the others are gone", func() bool {
		resp, _ := s.get(t, "/query/v1/wait", s.Token())
		return resp.StatusCode == http.StatusOK
	})
}

func TestServer_PanicsAreReportedAndCounted(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Queries["early"] = question(func(http.ResponseWriter, *http.Request, queryapi.Caller) error { panic("early secret") })
		o.Queries["late"] = question(func(w http.ResponseWriter, _ *http.Request, _ queryapi.Caller) error {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
			panic("late secret")
		})
		o.Queries["error"] = question(func(http.ResponseWriter, *http.Request, queryapi.Caller) error { return errors.New("a secret") })
	})
	for _, name := range []string{"early", "error"} {
		resp, body := s.get(t, "/query/v1/"+name, s.Token())
		wantStatus(t, name, resp, body, http.StatusInternalServerError)
		if strings.Contains(body, "secret") {
			t.Errorf("%s: the caller received %q", name, body)
		}
	}
	r, _ := http.NewRequest(http.MethodGet, "https://"+s.Address+"/query/v1/late", nil)
	r.Header.Set("Authorization", "Bearer "+s.Token())
	r.Header.Set("Accept-Encoding", "identity") // it has begun: it is not held back to be compressed
	resp, err := s.client(t).Do(r)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looked like a whole one")
	}
	want := "# HELP federator_query_panics_total Requests that panicked.\n# TYPE federator_query_panics_total counter\nfederator_query_panics_total 2\n"
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "federator_query_panics_total"); err != nil {
		t.Error(err)
	}
}

func TestServer_AppliesHubPrioritiesIfPermitted(t *testing.T) {
	const uid = "X-Kubernetes-Pf-Flowschema-Uid"
	s := start(t, func(o *queryapi.Options) { o.Fairness.Priority = true })
	token := tokenFor(t, "fair", "federator")
	until(t, "requests belong to a FlowSchema of the hub", func() bool {
		resp, _ := s.get(t, "/query/v1/whoami", token)
		return resp.StatusCode == http.StatusOK && resp.Header.Get(uid) != ""
	})
	cred, err := hub.IssueCert("no-priorities", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	allow(t, "no-priorities", "", rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}})
	s = start(t, func(o *queryapi.Options) { o.Hub, o.Fairness.Priority = hub.RESTConfigWith(cred), true })
	if resp, body := s.get(t, "/query/v1/whoami", token); resp.StatusCode != http.StatusOK || resp.Header.Get(uid) != "" {
		t.Errorf("without permission: %d %s, %q", resp.StatusCode, body, resp.Header.Get(uid))
	}
}

func TestServer_RequestsAreOnRecord(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	rules := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *queryapi.Options) { o.Audit = queryapi.Audit{PolicyFile: policy, LogFile: log} })
	s.get(t, "/members/blue/eu-1/api/v1/namespaces/shop/pods", tokenFor(t, "audi", "federator"))
	s.get(t, "/fleet/apis/apps/v1/deployments", "stranger")
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 0600", info, err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var events []auditv1.Event
	for line := range strings.Lines(string(text)) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if len(events) != 2 {
		t.Fatalf("%d events, want 2:\n%s", len(events), text)
	}
	e := events[0]
	if e.User.Username != queryserver.UserOf("audi") || e.Verb != "list" || e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || e.ObjectRef.Namespace != "shop" ||
		e.RequestURI != "/members/blue/eu-1/api/v1/namespaces/shop/pods" {
		t.Errorf("event %+v of %+v", e, e.ObjectRef)
	}
	if e := events[1]; e.ResponseStatus == nil || e.ResponseStatus.Code != http.StatusUnauthorized || e.ObjectRef.Resource != "deployments" {
		t.Errorf("the stranger: %+v", e)
	}
}

func TestServer_CertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func(host string) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for file, data := range map[string][]byte{certFile: cert, keyFile: key} {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("first.example")
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.TLS = queryapi.TLS{CertFile: certFile, KeyFile: keyFile, MinVersion: tls.VersionTLS13}
	})
	if s.CertificateAuthority() != nil {
		t.Error("an authority of our own beside files")
	}
	name := func() string {
		c, err := tls.Dial("tcp", s.Address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := name(); got != "first.example" {
		t.Errorf("served %s", got)
	}
	if _, err := tls.Dial("tcp", s.Address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken where 1.3 is the least")
	}
	if err := os.WriteFile(keyFile, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "first.example" {
		t.Errorf("served %s while the file was bad", got)
	}
	write("second.example")
	until(t, "the new certificate is served", func() bool { return name() == "second.example" })
}

func TestServer_OwnCertificateIsForItsHosts(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.TLS.Hosts = []string{"fed.example", "10.1.2.3"}
	})
	for _, host := range []string{"fed.example", "10.1.2.3", "127.0.0.1", "localhost"} {
		c, err := tls.Dial("tcp", s.Address, &tls.Config{RootCAs: s.Roots, ServerName: host})
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		c.Close()
	}
	if _, err := tls.Dial("tcp", s.Address, &tls.Config{RootCAs: s.Roots, ServerName: "other.example"}); err == nil {
		t.Error("the certificate is good for any name")
	}
}

func TestServer_EndingLetsRequestsFinish(t *testing.T) {
	b := newBlocked()
	s := start(t, with("wait", b, func(o *queryapi.Options) { o.Limits.Drain = patience }))
	answered := make(chan string, 1)
	go func() {
		_, body := s.get(t, "/query/v1/wait", s.Token())
		answered <- body
	}()
	<-b.entered
	ended := make(chan error, 1)
	go func() { ended <- s.End() }()
	until(t, "no new connection is taken", func() bool {
		c, err := net.Dial("tcp", s.Address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Fatalf("ended with a request under way: %v", err)
	default:
	}
	close(b.release)
	if body := <-answered; body != "done" {
		t.Errorf("the request under way got %q", body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServer_EndingDoesNotWaitForever(t *testing.T) {
	b := newBlocked()
	s := start(t, with("wait", b, func(o *queryapi.Options) { o.Limits.Drain = 10 * time.Millisecond }))
	failed := make(chan error, 1)
	client := s.client(t)
	go func() {
		r, _ := http.NewRequest(http.MethodGet, "https://"+s.Address+"/query/v1/wait", nil)
		r.Header.Set("Authorization", "Bearer "+s.Token())
		resp, err := client.Do(r)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode >= 400 {
				err = errors.New(resp.Status)
			}
		}
		failed <- err
	}()
	<-b.entered
	if err := s.End(); err != nil {
		t.Error(err)
	}
	select {
	case <-b.left:
	default:
		t.Error("the server was gone before its request")
	}
	if err := <-failed; err == nil {
		t.Error("a request that was cut off was answered")
	}
}
