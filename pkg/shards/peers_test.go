package shards_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/shards"
)

// report asks a peer as the leader does.
func report(p shards.Peer) (*http.Response, string, error) {
	r, err := p.Client.Get(p.URL + "/shards/v1/report")
	if err != nil {
		return nil, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r, string(text), err
}

// TestPeers_KnowEachOther: a peer's client reaches that process and no other, by HTTP/2, also while a CA is added.
func TestPeers_KnowEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "peers", 1)
	w.lead("a")
	a, b := w.start("a", 1000, nil), w.start("b", 2000, nil)
	until(t, func() error { return settled(1, a, b) })
	toB, toA := a.Peers()[0], b.Peers()[0]
	r, text, err := report(toB)
	if err != nil || r.ProtoMajor != 2 || r.TLS.Version != tls.VersionTLS13 || !strings.Contains(text, fmt.Sprintf(`"id":"b","epoch":%d`, toB.Epoch)) {
		t.Fatalf("%v %s %v", r, text, err)
	}
	must(t, shards.RotateAuthority(t.Context(), w.client, w.namespace, shards.DefaultSecret, false))
	for range 10 { // who has seen it, and who has not
		toB.Client.CloseIdleConnections()
		if _, _, err := report(toB); err != nil {
			t.Error(err)
		}
	}
	if err := shards.RotateAuthority(t.Context(), w.client, w.namespace, shards.DefaultSecret, true); err == nil || !strings.Contains(err.Error(), "not valid before") {
		t.Errorf("the old one is dropped before the new one is valid: %v", err)
	}

	// One that says it is at the address of a.
	impostor := w.start("c", 3000, func(o *shards.Options) { o.Address = strings.TrimPrefix(toA.URL, "https://") })
	until(t, func() error {
		if len(b.Peers()) != 2 {
			return errors.New("c is not a peer")
		}
		return nil
	})
	var name x509.HostnameError
	if _, _, err := report(b.Peers()[1]); !errors.As(err, &name) {
		t.Errorf("a answers where c is expected: %v", err)
	}
	impostor.stop()
}

// TestPeers_AnswerNobodyElse: not who has no certificate, and not who has one of the CA of agents, whatever it says.
func TestPeers_AnswerNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "strangers", 0)
	w.lead("a")
	a, b := w.start("a", 1000, nil), w.start("b", 2000, nil)
	until(t, func() error {
		if len(b.Peers()) != 1 {
			return errors.New("there is no peer")
		}
		return nil
	})
	<-a.Loaded()
	address := strings.TrimPrefix(b.Peers()[0].URL, "https://")
	refused := func(certificate tls.Certificate) error {
		c, err := tls.Dial("tcp", address, &tls.Config{
			InsecureSkipVerify:   true, // shown whatever CAs the server asks for
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
		})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Read(make([]byte, 1)) // by TLS 1.3 the server refuses after the client has shaken hands
		return err
	}
	if err := refused(tls.Certificate{}); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	secrets := w.client.CoreV1().Secrets(w.namespace)
	_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: hubside.AuthoritySecret}}, metav1.CreateOptions{})
	must(t, err)
	must(t, hubside.RotateAuthority(t.Context(), w.client, w.namespace, false))
	agents, err := secrets.Get(t.Context(), hubside.AuthoritySecret, metav1.GetOptions{})
	must(t, err)
	if err := refused(signed(t, agents.Data, "b")); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
		t.Errorf("with a certificate of the CA of agents: %v", err)
	}
	own, err := secrets.Get(t.Context(), shards.DefaultSecret, metav1.GetOptions{})
	must(t, err)
	if err := refused(signed(t, own.Data, "b", "c")); err == nil || !strings.Contains(err.Error(), "bad certificate") {
		t.Errorf("with a certificate of two processes: %v", err)
	}
}

// signed returns a client's certificate of the CA of a Secret.
func signed(t *testing.T, secret map[string][]byte, names ...string) tls.Certificate {
	t.Helper()
	var by *x509.Certificate
	var with any
	for name, text := range secret {
		block, _ := pem.Decode(text)
		var err error
		if strings.HasSuffix(name, ".crt") {
			by, err = x509.ParseCertificate(block.Bytes)
		} else {
			with, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		}
		must(t, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}, by, key.Public(), with)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestPeers_OfAnotherEpochAreNotBelieved: an answer of another epoch than the Lease says is not used.
func TestPeers_OfAnotherEpochAreNotBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "epochs", 2)
	w.lead("a")
	a, b := w.start("a", 1000, nil), w.start("b", 2000, nil)
	until(t, func() error { return settled(1, a, b) })
	b.cut.Store(true)
	leases := w.client.CoordinationV1().Leases(w.namespace)
	until(t, func() error { // as if b had started again
		l, err := leases.Get(t.Context(), shards.LeasePrefix+"b", metav1.GetOptions{})
		must(t, err)
		l.Annotations["federator.dev/epoch"] = "7"
		now := metav1.NowMicro()
		l.Spec.RenewTime = &now
		_, err = leases.Update(t.Context(), l, metav1.UpdateOptions{})
		return err
	})
	until(t, func() error {
		m, _ := a.Map()
		for _, e := range m.Members {
			if e.Judge == "b" && e.Unready {
				return nil
			}
		}
		return fmt.Errorf("what the epoch before said counts: %+v", m.Members)
	})
	b.cut.Store(false)
	if err := <-b.ended; !errors.Is(err, shards.ErrTaken) {
		t.Errorf("b ends with %v", err)
	}
}
