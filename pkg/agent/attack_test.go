package agent_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
	"federator.dev/federator/pkg/aggregate"
)

// certified joins as a member, without an agent, and returns the certificate.
func (h *hub) certified(member, uid string) tls.Certificate {
	h.t.Helper()
	key, err := identity.NewKey()
	ok(h.t, err)
	return h.certifiedBy(key, h.token(member, uid, time.Hour))
}

func (h *hub) certifiedBy(key *ecdsa.PrivateKey, token string) tls.Certificate {
	h.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	ok(h.t, err)
	code, text := post(h.t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: der})
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

// within waits for something to become true.
func within(t testing.TB, d time.Duration, check func() bool) bool {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if check() {
			return true
		}
	}
	return false
}

// TestAttack_StrangersKeepAgentsFromRenewing: 128 connections of somebody without any certificate, kept with a request
// in three seconds each, are all that federator serves. No agent can join, renew or say hello meanwhile: after
// certificateLife every agent of the fleet needs a new token.
func TestAttack_StrangersKeepAgentsFromRenewing(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	pair := h.certified(member, uid)
	var strangers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer strangers.Wait()
	defer cancel()
	var holding atomic.Int32
	for range 140 {
		strangers.Go(func() {
			for ctx.Err() == nil {
				c, err := tls.Dial("tcp", h.listening, &tls.Config{InsecureSkipVerify: true})
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				r := bufio.NewReader(c)
				for n := 0; ctx.Err() == nil; n++ {
					_ = c.SetDeadline(time.Now().Add(20 * time.Second))
					if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
						break
					}
					resp, err := http.ReadResponse(r, nil)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					if n == 0 {
						holding.Add(1)
						defer holding.Add(-1)
					}
					select {
					case <-time.After(3 * time.Second):
					case <-ctx.Done():
					}
				}
				c.Close()
			}
		})
	}
	if !within(t, patience, func() bool { return holding.Load() >= 128 }) {
		t.Skipf("only %d connections", holding.Load())
	}
	renewed := 0
	const tries = 20
	last := ""
	for range tries {
		code, why := post(t, client(pair), h.address, joining.RenewPath, joining.Request{CSR: csr(t)})
		if code == http.StatusOK {
			renewed++
		} else {
			last = why
		}
	}
	if renewed < tries/2 {
		t.Errorf("of an agent with a valid certificate %d of %d renewals succeeded: %s", renewed, tries, last)
	}
}

// TestAttack_StrangersKeepAgentsFromJoining: twenty empty requests a second use up all that may join.
func TestAttack_StrangersKeepAgentsFromJoining(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	until(t, "it serves", func() error {
		if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{}); code != http.StatusBadRequest {
			return errors.New(why)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	defer strangers.Wait()
	defer cancel()
	var asked atomic.Int32
	for range 8 {
		strangers.Go(func() {
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				resp, err := c.Post("https://"+h.address+joining.JoinPath, "application/json", strings.NewReader("{}"))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					asked.Add(1)
				}
			}
		})
	}
	within(t, patience, func() bool { return asked.Load() > 1000 })
	busy := 0
	const tries = 15
	for range tries {
		code, _ := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)})
		if code == http.StatusTooManyRequests {
			busy++
		}
	}
	if busy > tries/2 {
		t.Errorf("one who has a token was refused %d times of %d, as strangers send {}", busy, tries)
	}
}

// TestAttack_OneAgentKeepsOthersFromRenewing (law 7): the rate is of all, and one member can use it up.
func TestAttack_OneAgentKeepsOthersFromRenewing(t *testing.T) {
	h := newHub(t, 0)
	hostile := h.certified(h.create("hostile"))
	honest := h.certified(h.create("honest"))
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	var asked atomic.Int32
	for range 8 {
		asking.Go(func() {
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{hostile}}}}
			defer c.CloseIdleConnections()
			for ctx.Err() == nil {
				resp, err := c.Post("https://"+h.address+joining.RenewPath, "application/json", strings.NewReader("{}"))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					asked.Add(1)
				}
			}
		})
	}
	within(t, patience, func() bool { return asked.Load() > 500 })
	refused := 0
	const tries = 15
	for range tries {
		if code, _ := post(t, client(honest), h.address, joining.RenewPath, joining.Request{CSR: csr(t)}); code != http.StatusOK {
			refused++
		}
	}
	if refused > tries/2 {
		t.Errorf("an honest agent was refused %d times of %d, as another one renews without pause", refused, tries)
	}
}

// TestAttack_ADroppedCAEndsConnections: docs/agents.md says that after a leak the old CA is dropped, and agents have to
// join again. Whoever is connected stays, and with a certificate that the thief of the key has made for ten years, for ten.
func TestAttack_ADroppedCAEndsConnections(t *testing.T) {
	j := join(t, 0)
	// The thief of the CA's key makes a certificate of its own.
	s, err := j.client.CoreV1().Secrets(j.namespace).Get(t.Context(), hubside.AuthoritySecret, metav1.GetOptions{})
	ok(t, err)
	forged := forge(t, s, j.member, j.uid, 5*365*24*time.Hour)
	c, err := tls.Dial("tcp", j.listening, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{forged}, NextProtos: []string{joining.Protocol}})
	ok(t, err)
	defer c.Close()
	if ended(c, time.Second) {
		t.Fatal("the forged one is refused: the test is wrong")
	}
	ok(t, hubside.RotateAuthority(t.Context(), j.client, j.namespace, false))
	ok(t, hubside.RotateAuthority(t.Context(), j.client, j.namespace, true))
	until(t, "certificates of the old CA are refused", func() error {
		if code, _ := post(t, client(forged), j.address, joining.HelloPath, joining.Request{}); code == http.StatusOK {
			return errors.New("accepted")
		}
		return nil
	})
	if !ended(c, 5*time.Second) {
		t.Error("a connection by a forged certificate of the dropped CA is open, and is until its own certificate expires")
	}
}

// forge makes the certificate of a member with the CA of a Secret.
func forge(t *testing.T, s *corev1.Secret, member, uid string, life time.Duration) tls.Certificate {
	t.Helper()
	var authority tls.Certificate
	for name := range s.Data {
		if base, is := strings.CutSuffix(name, ".crt"); is {
			var err error
			authority, err = tls.X509KeyPair(s.Data[name], s.Data[base+".key"])
			ok(t, err)
		}
	}
	of, err := identity.Parse(member, uid)
	ok(t, err)
	key, err := identity.NewKey()
	ok(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	template.URIs = append(template.URIs, of.URI())
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	ok(t, err)
	leaf, err := x509.ParseCertificate(der)
	ok(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// cutConn is cut when federator has taken the token, and before its answer is read.
type cutConn struct {
	net.Conn
	writes atomic.Int32
	taken  func() bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.taken() {
		c.Close()
		return 0, errors.New("the link was cut")
	}
	return n, err
}

// TestAttack_ALostAnswerCostsTheToken: on a link that is cut at that moment the token is used up, the agent has nothing,
// and somebody has to bring another token to the cluster.
func TestAttack_ALostAnswerCostsTheToken(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	parsed, err := joining.ParseToken(token)
	ok(t, err)
	var cut atomic.Bool
	a, err := agent.New(agent.Options{
		Hubs: []string{h.address}, Token: token, Cluster: shared.Fleet.Members[0].RESTConfig(), Store: agent.InDirectory(t.TempDir()), Logger: h.log,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil || cut.Load() {
				return c, err
			}
			return &cutConn{Conn: c, taken: func() bool {
				if cut.Load() {
					return false
				}
				s, err := h.client.CoreV1().Secrets(h.namespace).Get(context.WithoutCancel(t.Context()), hubside.TokenSecret, metav1.GetOptions{})
				_, has := s.Data[parsed.ID()]
				return err == nil && !has && !cut.Swap(true)
			}}, nil
		},
	})
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := a.Run(ctx); err != nil {
		t.Errorf("after the answer was lost: %v", err)
	}
	if !cut.Load() {
		t.Error("the test is wrong: it was not cut")
	}
}

// TestAttack_AMemberThatIsNotDecodedIsOut: where its status says a time that Go does not read (the API server takes it), no
// change of the Member is seen, nor that it is deleted. Its agent stays connected, and may connect, until its certificate
// expires.
func TestAttack_AMemberThatIsNotDecodedIsOut(t *testing.T) {
	j := join(t, 0)
	_, err := j.members().Patch(t.Context(), "edge", types.MergePatchType, []byte(`{"status":{"lastContactTime":"2020-01-01t00:00:00z"}}`), metav1.PatchOptions{}, "status")
	ok(t, err)
	ok(t, j.members().Delete(t.Context(), "edge", metav1.DeleteOptions{}))
	kept, err := j.store.Load(t.Context())
	ok(t, err)
	pair, err := tls.X509KeyPair(kept.Certificate, kept.Key)
	ok(t, err)
	if !within(t, 10*time.Second, func() bool {
		code, _ := post(t, client(pair), j.address, joining.HelloPath, joining.Request{})
		return code == http.StatusForbidden
	}) {
		put(t, "leaked")
		seen := within(t, 5*time.Second, func() bool {
			_, is := j.follower.index.Snapshot().Get(aggregate.Ref{Member: j.member, Kind: "ConfigMap", Namespace: "default", Name: "leaked"})
			return is
		})
		t.Errorf("its Member was deleted, and the agent is accepted; what it sends still comes: %t", seen)
	}
}

// TestAttack_AMemberWithoutAnAgentIsNotConnected: MemberStatus says that Members without an agent have none.
func TestAttack_AMemberWithoutAnAgentIsNotConnected(t *testing.T) {
	j := join(t, 0)
	until(t, "the status says so", func() error {
		if s := j.hub.member("edge").Status; s.Connected == nil || !*s.Connected {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	_, err := j.members().Patch(t.Context(), "edge", types.MergePatchType, []byte(`{"spec":{"agent":null,"kubeconfig":{"secret":"edge"}}}`), metav1.PatchOptions{})
	ok(t, err)
	if !within(t, 25*time.Second, func() bool {
		s := j.hub.member("edge").Status
		return s.Connected == nil || !*s.Connected
	}) {
		t.Errorf("a Member that has a kubeconfig now is shown as connected, by an agent that was thrown out: %+v", j.hub.member("edge").Status)
	}
}

// TestAttack_RotatingOftenLocksEverybodyOut: the ninth CA makes all of them unusable. Processes that run go on, those that
// start let nobody in, and rotate-ca --drop-old cannot repair it.
func TestAttack_RotatingOftenLocksEverybodyOut(t *testing.T) {
	h := newHub(t, 0)
	pair := h.certified(h.create("edge"))
	var err error
	for range 8 {
		if err = hubside.RotateAuthority(t.Context(), h.client, h.namespace, false); err != nil {
			return // it says that there are too many
		}
	}
	if err := hubside.RotateAuthority(t.Context(), h.client, h.namespace, true); err != nil {
		t.Errorf("the old ones cannot be dropped: %v", err)
	}
	_, restarted, _ := h.process()
	if !within(t, 5*time.Second, func() bool {
		c := client(pair)
		c.Timeout = time.Second
		code, _ := post(t, c, restarted.String(), joining.HelloPath, joining.Request{})
		return code != 0
	}) {
		t.Error("a process that starts serves nobody")
	}
}

// TestAttack_TokensNameACAThatServes: a CA without a key is trusted only, says authority. Tokens name the oldest all the
// same, and nobody can join.
func TestAttack_TokensNameACAThatServes(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	h.token(member, uid, time.Hour)
	ok(t, hubside.RotateAuthority(t.Context(), h.client, h.namespace, false))
	secrets := h.client.CoreV1().Secrets(h.namespace)
	s, err := secrets.Get(t.Context(), hubside.AuthoritySecret, metav1.GetOptions{})
	ok(t, err)
	oldest := "~"
	for name := range s.Data {
		oldest = min(oldest, name)
	}
	delete(s.Data, strings.TrimSuffix(oldest, ".crt")+".key")
	_, err = secrets.Update(t.Context(), s, metav1.UpdateOptions{})
	ok(t, err)
	time.Sleep(3 * time.Second)
	a, err := agent.New(agent.Options{
		Hubs: []string{h.address}, Token: h.token(member, uid, time.Hour), Cluster: shared.Fleet.Members[0].RESTConfig(), Store: agent.InDirectory(t.TempDir()), Logger: h.log,
	})
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = a.Run(ctx) })
	if !within(t, 10*time.Second, func() bool {
		c, err := h.server.Load().DialAgent(t.Context(), member, uid)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Error("nobody can join with a token made after the key of the oldest CA was taken out")
	}
}

// TestAttack_TokensAfterTheirSecretWasDeleted: what ensureAuthority makes at the start it does not make again.
func TestAttack_TokensAfterTheirSecretWasDeleted(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	h.token(member, uid, time.Hour)
	ok(t, h.client.CoreV1().Secrets(h.namespace).Delete(t.Context(), hubside.TokenSecret, metav1.DeleteOptions{}))
	if !within(t, 15*time.Second, func() bool {
		_, err := hubside.CreateToken(t.Context(), h.client, h.namespace, member, uid, time.Hour)
		return err == nil
	}) {
		t.Error("no token can be made until federator is restarted")
	}
}

// TestAttack_DroppingNothingIsNoSuccess: "If a key has leaked, drop the old CA at once" says docs/agents.md. With one CA,
// whose key has leaked, rotate-ca --drop-old succeeds, and the leaked one is what is left.
func TestAttack_DroppingNothingIsNoSuccess(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	h.token(member, uid, time.Hour)
	s, err := h.client.CoreV1().Secrets(h.namespace).Get(t.Context(), hubside.AuthoritySecret, metav1.GetOptions{})
	ok(t, err)
	forged := forge(t, s, member, uid, time.Hour)
	if err := hubside.RotateAuthority(t.Context(), h.client, h.namespace, true); err != nil {
		return
	}
	time.Sleep(2 * time.Second)
	if code, _ := post(t, client(forged), h.address, joining.HelloPath, joining.Request{}); code == http.StatusOK {
		t.Error("--drop-old has succeeded, and what the leaked key signs is accepted")
	}
}
