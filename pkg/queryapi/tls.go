package queryapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
)

// certificates are the serving certificate and the client CAs. Files are reloaded when they
// change; an invalid change is logged, and the previous content stays in use.
type certificates struct {
	files     TLS
	clients   *clientCAs // nil: no client certificates
	authority []byte     // PEM, of a self-signed certificate
	config    *tls.Config
	log       *slog.Logger

	cert, key []byte // as last read, by newCertificates and then by run
	serving   atomic.Pointer[tls.Certificate]
}

// reloadInterval is how often files are checked. Mounted Secrets are replaced by changing a
// symbolic link, which file notifications miss.
const reloadInterval = time.Second

func newCertificates(o Options) (*certificates, error) {
	c := &certificates{files: o.TLS, log: o.Logger}
	c.config = &tls.Config{
		MinVersion: o.TLS.MinVersion, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.serving.Load(), nil },
	}
	load := c.selfSign
	if o.TLS.CertFile != "" {
		load = func(Options) error { return c.reload() }
	}
	if err := load(o); err != nil {
		return nil, fmt.Errorf("query API: serving certificate: %w", err)
	}
	if o.Authentication.ClientCAFile != "" {
		c.clients = &clientCAs{file: o.Authentication.ClientCAFile}
		if err := c.clients.reload(); err != nil {
			return nil, fmt.Errorf("query API: client CAs: %w", err)
		}
		// The certificate is verified by authentication: other callers have none.
		c.config.ClientAuth = tls.RequestClientCert
	}
	return c, nil
}

// selfSign makes a certificate and its CA, valid for a year.
func (c *certificates) selfSign(o Options) error {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if tcp, ok := o.Listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		addresses = append(addresses, tcp.IP)
	}
	names := []string{"localhost"}
	for _, host := range o.TLS.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, host)
		}
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("federator", addresses, slices.Compact(names))
	if err != nil {
		return err
	}
	chain, err := certutil.ParseCertsPEM(cert)
	if err != nil {
		return err
	}
	if c.authority, err = certutil.EncodeCertificates(chain[len(chain)-1]); err != nil {
		return err
	}
	return c.load(cert, key)
}

// reload loads the files if they have changed.
func (c *certificates) reload() error {
	cert, err := os.ReadFile(c.files.CertFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.files.KeyFile)
	if err != nil {
		return err
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	return c.load(cert, key)
}

func (c *certificates) load(cert, key []byte) error {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	c.cert, c.key = cert, key
	c.serving.Store(&pair)
	return nil
}

// run reloads the files until ctx ends.
func (c *certificates) run(ctx context.Context) {
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	var serving, clients string // last error of each
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.files.CertFile != "" {
			serving = c.logOnce("serving certificate", c.reload(), serving)
		}
		if c.clients != nil {
			clients = c.logOnce("client CAs", c.clients.reload(), clients)
		}
	}
}

// logOnce logs an error of a file once, and returns its text.
func (c *certificates) logOnce(what string, err error, before string) string {
	if err == nil {
		return ""
	}
	if err.Error() != before {
		c.log.Error("query API: cannot reload, the previous content stays in use", "file", what, "error", err)
	}
	return err.Error()
}

// clientCAs verify client certificates. They are a CAContentProvider without listeners,
// since every verification reads the present content.
type clientCAs struct {
	file    string
	current atomic.Pointer[caBundle]
}

type caBundle struct {
	pem  []byte
	pool *x509.CertPool
}

func (a *clientCAs) reload() error {
	pem, err := os.ReadFile(a.file)
	if err != nil {
		return err
	}
	if now := a.current.Load(); now != nil && bytes.Equal(now.pem, pem) {
		return nil
	}
	certs, err := certutil.ParseCertsPEM(pem)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	for _, cert := range certs {
		if !cert.IsCA {
			return errors.New("a certificate of the bundle is not a CA")
		}
		pool.AddCert(cert)
	}
	a.current.Store(&caBundle{pem: pem, pool: pool})
	return nil
}

func (a *clientCAs) Name() string                             { return "clients" }
func (a *clientCAs) CurrentCABundleContent() []byte           { return a.current.Load().pem }
func (a *clientCAs) AddListener(dynamiccertificates.Listener) {}

func (a *clientCAs) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: a.current.Load().pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}
