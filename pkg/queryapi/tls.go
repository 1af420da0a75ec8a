package queryapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"

	"golang.org/x/sync/errgroup"
)

// certificates are those that the server shows and those that it believes.
type certificates struct {
	serving   dynamiccertificates.CertKeyContentProvider
	clients   dynamiccertificates.CAContentProvider // nil: none are asked for
	authority []byte                                // PEM, of a certificate of our own
	control   *dynamiccertificates.DynamicServingCertificateController
	config    *tls.Config
}

func newCertificates(o Options) (*certificates, error) {
	c := &certificates{config: &tls.Config{MinVersion: o.TLS.MinVersion, NextProtos: []string{"h2", "http/1.1"}}}
	var err error
	if o.TLS.CertFile != "" {
		c.serving, err = dynamiccertificates.NewDynamicServingContentFromFiles("federator", o.TLS.CertFile, o.TLS.KeyFile)
	} else {
		err = c.makeOwn(o)
	}
	if err != nil {
		return nil, fmt.Errorf("query API: serving certificate: %w", err)
	}
	if o.Login.ClientCAFile != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("clients", o.Login.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("query API: authorities of clients: %w", err)
		}
		c.clients = ca
		// Whether the certificate is good is for authentication to say: other
		// callers have none.
		c.config.ClientAuth = tls.RequestClientCert
	}
	c.control = dynamiccertificates.NewDynamicServingCertificateController(c.config, c.clients, c.serving, nil, nil)
	if c.clients != nil {
		c.clients.AddListener(c.control)
	}
	c.serving.AddListener(c.control)
	if err := c.control.RunOnce(); err != nil {
		return nil, fmt.Errorf("query API: certificates: %w", err)
	}
	served := c.config.Clone()
	served.GetConfigForClient = c.control.GetConfigForClient
	c.config = served
	return c, nil
}

// makeOwn makes a certificate and its authority, for a year.
func (c *certificates) makeOwn(o Options) error {
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
	c.authority = cert
	c.serving, err = dynamiccertificates.NewStaticCertKeyContent("federator", cert, key)
	return err
}

// runner is what follows files.
type runner interface {
	Run(ctx context.Context, workers int)
}

// run follows the files until ctx ends.
func (c *certificates) run(ctx context.Context) {
	var g errgroup.Group
	for _, content := range []any{c.serving, c.clients} {
		if r, ok := content.(runner); ok {
			g.Go(func() error {
				r.Run(ctx, 1)
				return nil
			})
		}
	}
	c.control.Run(1, ctx.Done())
	_ = g.Wait() // it carries no errors
}
