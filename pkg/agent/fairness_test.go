package agent_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// pair joins as a member, without an agent, and returns the certificate with its key.
func (h *hub) pair(member, uid string) tls.Certificate {
	h.t.Helper()
	key, err := identity.NewKey()
	ok(h.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	ok(h.t, err)
	code, text := post(h.t, client(), h.address, joining.JoinPath, joining.Request{Token: h.token(member, uid, time.Hour), CSR: der})
	if code != http.StatusOK {
		h.t.Fatalf("joining: %d %s", code, text)
	}
	var resp joining.Response
	ok(h.t, json.Unmarshal([]byte(text), &resp))
	pem, err := identity.EncodeKey(key)
	ok(h.t, err)
	pair, err := tls.X509KeyPair(resp.Certificate, pem)
	ok(h.t, err)
	return pair
}

// TestServer_StrangersDoNotKeepAgentsFromRenewing, however many connections they hold.
func TestServer_StrangersDoNotKeepAgentsFromRenewing(t *testing.T) {
	h := newHub(t, 0)
	pair := h.pair(h.create("edge"))
	for range 140 { // each for as long as federator waits for a request
		c, err := tls.Dial("tcp", h.listening, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			continue // it is refused
		}
		defer c.Close()
	}
	for range 3 {
		if code, why := post(t, client(pair), h.address, joining.RenewPath, joining.Request{CSR: csr(t)}); code != http.StatusOK {
			t.Errorf("%d %s", code, why)
		}
	}
}

// times is how often a request is sent: more often than any rate lets through.
const times = 80

// asked sends a request many times, some at once, and returns how many were answered by each code.
func asked(t *testing.T, address, path string, body joining.Request, certificates ...tls.Certificate) map[int]int {
	t.Helper()
	var asking sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	var left atomic.Int32
	left.Store(times)
	for range 6 { // fewer than one Member may have
		asking.Go(func() {
			for left.Add(-1) >= 0 {
				code, _ := post(t, client(certificates...), address, path, body)
				mu.Lock()
				codes[code]++
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return codes
}

// TestServer_StrangersDoNotKeepAgentsFromJoining: neither what is no token counts, nor one that nobody has made.
func TestServer_StrangersDoNotKeepAgentsFromJoining(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	if codes := asked(t, h.address, joining.JoinPath, joining.Request{Token: joining.NewToken([32]byte{1}).String(), CSR: csr(t)}); codes[http.StatusUnauthorized] != times {
		t.Errorf("unknown tokens: %v", codes)
	}
	if codes := asked(t, h.address, joining.JoinPath, joining.Request{}); codes[http.StatusBadRequest] != times {
		t.Errorf("no tokens: %v", codes)
	}
	if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)}); code != http.StatusOK {
		t.Errorf("one that has a token: %d %s", code, why)
	}
}

// TestServer_OneAgentDoesNotKeepOthersFromRenewing (law 7).
func TestServer_OneAgentDoesNotKeepOthersFromRenewing(t *testing.T) {
	h := newHub(t, 0)
	hostile, honest := h.pair(h.create("hostile")), h.pair(h.create("honest"))
	for _, path := range []string{joining.RenewPath, joining.HelloPath} {
		codes := asked(t, h.address, path, joining.Request{CSR: csr(t)}, hostile)
		if codes[http.StatusOK] == 0 || codes[http.StatusOK] > 40 || codes[http.StatusTooManyRequests] == 0 {
			t.Errorf("%s: %v", path, codes)
		}
		for range 3 {
			if code, why := post(t, client(honest), h.address, path, joining.Request{CSR: csr(t)}); code != http.StatusOK {
				t.Errorf("%s of another: %d %s", path, code, why)
			}
		}
	}
}
