package servertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/internal/authority"
	"federator.dev/federator/pkg/notify/sinks"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		serveChild(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func message(n int) sinks.Message {
	return sinks.Message{
		ID: fmt.Sprintf("v-%d", n), Type: "dev.federator.violation.opened", Source: "/federator/test", Subject: "Pod/shop/web",
		Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Data: json.RawMessage(`{"policy":"tier"}`),
	}
}

func messages(n int) []sinks.Message {
	all := make([]sinks.Message, n)
	for i := range all {
		all[i] = message(i)
	}
	return all
}

// dials is a Dial that keeps the addresses.
type dials struct {
	mu        sync.Mutex
	addresses []string
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addresses = append(d.addresses, address)
	d.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// ca is an authority of a test.
type ca struct {
	authority.CA
	t testing.TB
}

func newCA(t testing.TB) ca {
	t.Helper()
	data, err := authority.New("test", time.Now().Add(-time.Minute), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	all, skipped := authority.Parse(data, time.Now())
	if len(all) != 1 {
		t.Fatal(skipped)
	}
	return ca{all[0], t}
}

func (c ca) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Cert.Raw})
}

// issue returns a certificate for this machine, and for a client, with its key.
func (c ca) issue() (cert, key []byte) {
	c.t.Helper()
	private, err := authority.NewKey()
	if err != nil {
		c.t.Fatal(err)
	}
	signed, err := c.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, private.Public(), time.Now(), time.Minute, time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		c.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// tls is the configuration of a server that requires certificates of its clients.
func (c ca) tls() *tls.Config {
	c.t.Helper()
	pair, err := tls.X509KeyPair(c.issue())
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.Cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
}
