package sinks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"federator.dev/federator/pkg/notify/internal/webhook"
)

const defaultTimeout = 10 * time.Second

// Dial opens a connection, like [net.Dialer.DialContext]. All connections of a sink go through its own, which
// refuses the addresses that federator must not reach; names are for it to resolve.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

func dialOr(dial Dial) Dial {
	if dial == nil {
		return (&net.Dialer{}).DialContext
	}
	return dial
}

func timeoutOr(d time.Duration) (time.Duration, error) {
	if d < 0 {
		return 0, &FieldError{Field: "timeout", Problem: "it is negative"}
	}
	if d == 0 {
		return defaultTimeout, nil
	}
	return d, nil
}

// tlsConfig returns the configuration of a client, or a FieldError.
func tlsConfig(ca, cert, key []byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, &FieldError{Field: "ca", Problem: "it has no certificate in PEM"}
		}
	}
	if cert == nil && key == nil {
		return config, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, &FieldError{Field: "clientCert", Problem: "it and clientKey are not a certificate and its key in PEM"}
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// httpClient returns a client that uses no proxy of the environment: it would dial in place of dial.
func httpClient(dial Dial, config *tls.Config) *http.Client {
	return webhook.NewClient(&http.Transport{
		DialContext: dialOr(dial), TLSClientConfig: config, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
	})
}
