package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
	"federator.dev/federator/pkg/clusterinformers"
)

// client sends requests to federator as an agent does that verifies nothing.
func client(certificates ...tls.Certificate) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}}
}

// csr returns a signing request for a new key.
func csr(t testing.TB) []byte {
	t.Helper()
	key, err := identity.NewKey()
	ok(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	ok(t, err)
	return der
}

// post sends a request, and returns the answer's code and message.
func post(t testing.TB, c *http.Client, address, path string, body any) (int, string) {
	t.Helper()
	text, err := json.Marshal(body)
	ok(t, err)
	resp, err := c.Post("https://"+address+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ok(t, err)
	var status metav1.Status
	if json.Unmarshal(answer, &status) == nil && status.Message != "" {
		return resp.StatusCode, status.Message
	}
	return resp.StatusCode, string(answer)
}

// TestJoin_ATokenWorksOnce: of many who use it at once, at two processes, one is let in, and nobody after.
func TestJoin_ATokenWorksOnce(t *testing.T) {
	h := newHub(t, 0)
	_, other, _ := h.process()
	member, uid := h.create("once")
	for range 3 {
		token := h.token(member, uid, time.Hour)
		const users = 8
		codes := make([]int, users)
		var using sync.WaitGroup
		for i := range users {
			using.Go(func() {
				address := h.address
				if i%2 == 1 {
					address = other.String()
				}
				codes[i], _ = post(t, client(), address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)})
			})
		}
		using.Wait()
		won := 0
		for _, c := range codes {
			switch c {
			case http.StatusOK:
				won++
			case http.StatusUnauthorized:
			default:
				t.Errorf("somebody got %d", c)
			}
		}
		if won != 1 {
			t.Errorf("%d have joined with one token: %v", won, codes)
		}
		if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)}); code != http.StatusUnauthorized {
			t.Errorf("later: %d %s", code, why)
		}
	}
}

// TestJoin_Refusals are of tokens and requests that let nobody in.
func TestJoin_Refusals(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("one")
	valid := func() string { return h.token(member, uid, time.Hour) }
	expired := h.token(member, uid, time.Second)
	_, gone := h.create("gone")
	ofGone := h.token(h.namespace+"/gone", gone, time.Hour)
	ok(t, h.members().Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	h.create("gone") // again
	until(t, "the token has expired", func() error {
		if _, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: expired, CSR: csr(t)}); !strings.Contains(why, "expired") {
			return errors.New(why)
		}
		return nil
	})
	parsed, err := joining.ParseToken(valid())
	ok(t, err)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	ok(t, err)
	rsaCSR, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	ok(t, err)
	tampered := csr(t)
	tampered[len(tampered)-1] ^= 1
	for name, tc := range map[string]struct {
		body any
		code int
	}{
		"no token":              {joining.Request{CSR: csr(t)}, http.StatusBadRequest},
		"one of nobody":         {joining.Request{Token: joining.NewToken(parsed.Authority).String(), CSR: csr(t)}, http.StatusUnauthorized},
		"one with another ID":   {joining.Request{Token: flip(valid(), 20), CSR: csr(t)}, http.StatusUnauthorized},
		"one not quite right":   {joining.Request{Token: flip(valid(), 60), CSR: csr(t)}, http.StatusUnauthorized},
		"of a recreated Member": {joining.Request{Token: ofGone, CSR: csr(t)}, http.StatusForbidden},
		"no CSR":                {joining.Request{Token: valid()}, http.StatusBadRequest},
		"a CSR of RSA":          {joining.Request{Token: valid(), CSR: rsaCSR}, http.StatusBadRequest},
		"one that is not sound": {joining.Request{Token: valid(), CSR: tampered}, http.StatusBadRequest},
		"a large body":          {map[string]any{"token": strings.Repeat("x", 2*joining.MaxBody)}, http.StatusBadRequest},
	} {
		if code, why := post(t, client(), h.address, joining.JoinPath, tc.body); code != tc.code {
			t.Errorf("%s: %d %s", name, code, why)
		}
	}
	for _, path := range []string{joining.RenewPath, joining.HelloPath} {
		if code, why := post(t, client(), h.address, path, joining.Request{CSR: csr(t)}); code != http.StatusUnauthorized {
			t.Errorf("%s without a certificate: %d %s", path, code, why)
		}
	}
	for _, life := range []time.Duration{0, -time.Hour, 30 * 24 * time.Hour} {
		if token, err := hubside.CreateToken(t.Context(), h.client, h.namespace, member, uid, life); err == nil {
			t.Errorf("a token for %s: %s", life, token)
		}
	}
}

// flip changes a character of a token.
func flip(token string, at int) string {
	c := "A"
	if token[at] == 'A' {
		c = "B"
	}
	return token[:at] + c + token[at+1:]
}

// TestJoin_AnotherServerIsNotTrusted: who cannot show the CA of the token learns no token.
func TestJoin_AnotherServerIsNotTrusted(t *testing.T) {
	h, other := newHub(t, 0), newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	a, err := agent.New(agent.Options{
		Hubs: []string{other.address}, Token: token, Cluster: shared.Fleet.Members[0].RESTConfig(), Store: agent.InDirectory(t.TempDir()), Logger: h.log,
	})
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	ok(t, a.Run(ctx))
	if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)}); code != http.StatusOK {
		t.Errorf("the token was used: %d %s", code, why)
	}
}

// TestAgent_ATokenThatIsRefusedEndsIt: somebody has to act.
func TestAgent_ATokenThatIsRefusedEndsIt(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)}); code != http.StatusOK {
		t.Fatal(code, why)
	}
	r := h.runAgent(shared.Fleet.Members[0].RESTConfig(), token, agent.InDirectory(t.TempDir()))
	select {
	case err := <-r.done:
		if !errors.Is(err, agent.ErrRefused) {
			t.Error(err)
		}
		r.done <- err
	case <-time.After(patience):
		t.Error("it goes on")
	}
}

// TestAgent_KeepsItsCertificateInASecret of its own cluster, too.
func TestAgent_KeepsItsCertificateInASecret(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	own := shared.Fleet.Members[0].Client()
	store := agent.InSecret(own, "default", nameOf(t))
	t.Cleanup(func() {
		ok(t, own.CoreV1().Secrets("default").Delete(context.WithoutCancel(t.Context()), nameOf(t), metav1.DeleteOptions{}))
	})
	for _, token := range []string{h.token(member, uid, time.Hour), "", h.token(member, uid, time.Hour)} {
		r := h.runAgent(shared.Fleet.Members[0].RESTConfig(), token, store)
		until(t, "it is connected", func() error {
			c, err := h.server.Load().DialAgent(t.Context(), member, uid)
			if err == nil {
				c.Close()
			}
			return err
		})
		r.stop()
	}
	s, err := own.CoreV1().Secrets("default").Get(t.Context(), nameOf(t), metav1.GetOptions{})
	ok(t, err)
	if len(s.Data) != 4 {
		t.Errorf("it has %d keys", len(s.Data))
	}
}

// TestAgent_RenewsItsCertificate before it expires, and goes on.
func TestAgent_RenewsItsCertificate(t *testing.T) {
	const life = 6 * time.Second
	j := join(t, life)
	before, _ := j.relists()
	kept, err := j.store.Load(t.Context())
	ok(t, err)
	first, err := tls.X509KeyPair(kept.Certificate, kept.Key)
	ok(t, err)
	until(t, "the first certificate has expired", func() error {
		if code, _ := post(t, client(first), j.address, joining.HelloPath, joining.Request{}); code == http.StatusOK || code == http.StatusTooManyRequests {
			return errors.New("it is accepted")
		}
		return nil
	})
	put(t, "renewed")
	j.follower.has(j.member, "renewed", true)
	if after, _ := j.relists(); after != before {
		t.Errorf("%d lists, %d before", after, before)
	}
	second, err := j.store.Load(t.Context())
	ok(t, err)
	if bytes.Equal(second.Certificate, kept.Certificate) || bytes.Equal(second.Key, kept.Key) {
		t.Error("certificate or key are the same")
	}
}

// TestAgent_OutlivesARotatedCA: once it has renewed, the old CA can go.
func TestAgent_OutlivesARotatedCA(t *testing.T) {
	const life = 8 * time.Second
	j := join(t, life)
	ok(t, hubside.RotateAuthority(t.Context(), j.client, j.namespace, false))
	until(t, "the agent trusts both CAs", func() error {
		kept, err := j.store.Load(t.Context())
		ok(t, err)
		if n := bytes.Count(kept.Authorities, []byte("BEGIN")); n != 2 {
			return errors.New("there are not two")
		}
		return nil
	})
	ok(t, hubside.RotateAuthority(t.Context(), j.client, j.namespace, true))
	until(t, "it has one again, the new one", func() error {
		kept, err := j.store.Load(t.Context())
		ok(t, err)
		if n := bytes.Count(kept.Authorities, []byte("BEGIN")); n != 1 {
			return errors.New("there is not one")
		}
		return nil
	})
	j.stop()
	j.start() // nothing of before is in memory
	put(t, "rotated")
	j.follower.has(j.member, "rotated", true)
	// Who did not renew meanwhile joins again.
	member, uid := j.create("late")
	store := agent.InDirectory(t.TempDir())
	j.runAgent(credentials(t, nameOf(t)+"-late", readAll), j.token(member, uid, time.Hour), store)
	f := j.follow([]string{"ConfigMap"}, clusterinformers.Spec{Name: member, UID: uid, Agent: true})
	f.synced(member)
}
