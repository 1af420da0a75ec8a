package agent_test

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/agent/hubside"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// forge makes the certificate of a member with the key of the hub's only CA.
func (h *hub) forge(member, uid string, life time.Duration) tls.Certificate {
	h.t.Helper()
	s, err := h.client.CoreV1().Secrets(h.namespace).Get(h.t.Context(), hubside.AuthoritySecret, metav1.GetOptions{})
	ok(h.t, err)
	var authority tls.Certificate
	for name := range s.Data {
		if base, is := strings.CutSuffix(name, ".crt"); is {
			authority, err = tls.X509KeyPair(s.Data[name], s.Data[base+".key"])
			ok(h.t, err)
		}
	}
	of, err := identity.Parse(member, uid)
	ok(h.t, err)
	key, err := identity.NewKey()
	ok(h.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true, URIs: []*url.URL{of.URI()},
	}, authority.Leaf, key.Public(), authority.PrivateKey)
	ok(h.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// open opens a connection over which federator sends requests.
func (h *hub) open(certificate tls.Certificate) net.Conn {
	h.t.Helper()
	c, err := tls.Dial("tcp", h.listening, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}, NextProtos: []string{joining.Protocol}})
	ok(h.t, err)
	h.t.Cleanup(func() { c.Close() })
	return c
}

// closes reports whether a connection ends within a time. Nothing is sent over it.
func closes(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	ok(t, c.SetReadDeadline(time.Now().Add(within)))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// TestRegistry_ADroppedCAEndsConnections of all: a thief of its key makes certificates that are valid for as long as he likes.
func TestRegistry_ADroppedCAEndsConnections(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	h.pair(member, uid)
	forged := h.forge(member, uid, 5*365*24*time.Hour)
	c := h.open(forged)
	if closes(t, c, 200*time.Millisecond) {
		t.Fatal("it is refused before")
	}
	ok(t, hubside.RotateAuthority(t.Context(), h.client, h.namespace, false))
	ok(t, hubside.RotateAuthority(t.Context(), h.client, h.namespace, true))
	if !closes(t, c, patience) {
		t.Error("it stays connected")
	}
	if code, why := post(t, client(forged), h.address, joining.HelloPath, joining.Request{}); code == http.StatusOK {
		t.Errorf("it is accepted: %s", why)
	}
}

// TestRegistry_AConnectionLivesAsLongAsACertificate of federator's, also where it was opened by one that is valid for longer.
func TestRegistry_AConnectionLivesAsLongAsACertificate(t *testing.T) {
	h := newHub(t, time.Second)
	member, uid := h.create("edge")
	h.pair(member, uid)
	if c := h.open(h.forge(member, uid, time.Hour)); !closes(t, c, patience) {
		t.Error("it stays connected")
	}
}
