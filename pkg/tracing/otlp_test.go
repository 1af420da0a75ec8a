package tracing_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/tracing"
	"federator.dev/federator/test/otlp"
)

// certificate returns one for 127.0.0.1, and the file of its CA.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return config, file(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExporter_VerifiesAndSendsHeaders(t *testing.T) {
	config, ca := certificate(t)
	receiver := otlp.Listen(t, config)
	headers := file(t, "headers", "Authorization: Bearer one\n\nx-scope: fleet\n")
	send := func(r tracing.Receiver) {
		r.Endpoint = receiver.Endpoint
		exporter, err := tracing.NewExporter(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := tracing.New(tracing.Options{Exporter: exporter, Sampling: 1, EndWithin: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		stop := run(t, tr)
		tr.Committed(&tracing.Commit{Revision: 1, Changes: 1, At: start}, []tracing.Stamp{{Position: 1, Read: start}})
		stop()
	}
	send(tracing.Receiver{CAFile: ca, HeadersFile: headers})
	if n := len(receiver.Spans()); n == 0 || receiver.Header("authorization") != "Bearer one" || receiver.Header("x-scope") != "fleet" {
		t.Errorf("%d spans, with headers %q and %q", n, receiver.Header("authorization"), receiver.Header("x-scope"))
	}
	_, other := certificate(t)
	was := len(receiver.Spans())
	send(tracing.Receiver{CAFile: other})
	if n := len(receiver.Spans()); n != was {
		t.Errorf("%d spans were sent to a receiver that another CA has signed", n-was)
	}
}

func TestNewExporter_Refusals(t *testing.T) {
	for want, r := range map[string]tracing.Receiver{
		`endpoint: "collector" is not a host and a port`:                  {Endpoint: "collector"},
		`endpoint: "https://collector:4317" is not a host and a port`:     {Endpoint: "https://collector:4317"},
		`endpoint: "collector:otlp" is not a host and a port`:             {Endpoint: "collector:otlp"},
		"headersFile: cannot be sent unencrypted":                         {Endpoint: "a:1", Insecure: true, HeadersFile: "x"},
		"caFile: has no effect where nothing is encrypted":                {Endpoint: "a:1", Insecure: true, CAFile: "x"},
		"caFile: open /nonexistent":                                       {Endpoint: "a:1", CAFile: "/nonexistent"},
		"has no certificate":                                              {Endpoint: "a:1", CAFile: file(t, "ca", "x")},
		`headersFile: line 2 is not of the form "name: value"`:            {Endpoint: "a:1", HeadersFile: file(t, "h", "a: b\nsecret\n")},
		"line 2: the same header is given twice":                          {Endpoint: "a:1", HeadersFile: file(t, "h", "a: b\nA: c\n")},
		"line 1: names that begin with grpc- or end with -bin are gRPC's": {Endpoint: "a:1", HeadersFile: file(t, "h", "x-bin: b\n")},
	} {
		_, err := tracing.NewExporter(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
