package sinks_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/internal/authority"
	"federator.dev/federator/pkg/notify/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is what those have that take messages.
type sink interface {
	Send(ctx context.Context, messages []sinks.Message) (sent int, err error)
	Close() error
}

var (
	_ sink = (*sinks.Webhook)(nil)
	_ sink = (*sinks.NATS)(nil)
)

var key = []byte("0123456789abcdef")

func message(n int) sinks.Message {
	return sinks.Message{
		ID: fmt.Sprintf("v-%d", n), Type: "dev.federator.violation.opened", Source: "/federator/test", Subject: "Pod/shop/web",
		Time: time.Date(2026, 11, 30, 12, 0, n, 0, time.UTC), Data: json.RawMessage(`{"policy":"tier"}`),
	}
}

func messages(n int) []sinks.Message {
	all := make([]sinks.Message, n)
	for i := range all {
		all[i] = message(i)
	}
	return all
}

// ca is an authority of a test.
type ca struct {
	authority.CA
	t *testing.T
}

func newCA(t *testing.T) ca {
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
		Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
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

// serve starts a server with a certificate of the authority; with clients, it requires one of them, too.
func (c ca) serve(h http.Handler, clients bool) *httptest.Server {
	c.t.Helper()
	pair, err := tls.X509KeyPair(c.issue())
	if err != nil {
		c.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		s.TLS.ClientCAs.AddCert(c.Cert)
	}
	s.StartTLS()
	c.t.Cleanup(s.Close)
	return s
}

// counted is a Dial that counts its calls.
func counted(calls *atomic.Int64) sinks.Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		calls.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// closing closes a sink at the end of a test, before its servers end.
func closing[S interface{ Close() error }](t *testing.T, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
