package kubeconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"federator.dev/federator/internal/kubeconfigfile"
)

// The Secrets of the hub that hold certificates of query APIs, as the chart labels them.
const (
	tlsSecretLabels = "app.kubernetes.io/part-of=federator"
	tlsSecretType   = "type=" + string(corev1.SecretTypeTLS)
)

// handshakeTimeout is how long reading a server's certificates may take.
const handshakeTimeout = 15 * time.Second

// errNoAuthority is the error for a server whose certificate no known CA verifies.
var errNoAuthority = errors.New("no known CA verifies the server's certificate")

// authority is what may verify a server's certificate, and where it was found.
type authority struct {
	where string
	pem   []byte // nil: the system's
	err   error  // why it cannot be used
}

// findAuthority returns the first authority that verifies the certificate and the name of
// the server: the system's, one of a Secret of the hub, or one that a server on this
// machine has written. The server is sent nothing meanwhile.
func (f *flags) findAuthority(ctx context.Context) (authority, error) {
	u, err := url.Parse(f.server)
	if err != nil {
		return authority{}, fmt.Errorf("--server: %w", err)
	}
	chain, err := servedCertificates(ctx, u)
	if err != nil {
		return authority{}, fmt.Errorf("certificate of %s: %w", f.server, err)
	}
	if err := chain[0].VerifyHostname(u.Hostname()); err != nil {
		return authority{}, fmt.Errorf("certificate of %s: %w; name the server as its certificate does (query.tls.hosts of the chart adds names)", f.server, err)
	}
	var looked []string
	for _, find := range []func(context.Context) []authority{systemAuthority, f.hubAuthorities, localAuthority} {
		for _, a := range find(ctx) {
			if a.err == nil {
				a.err = a.verifies(chain, u.Hostname())
			}
			if a.err == nil {
				return a, nil
			}
			looked = append(looked, fmt.Sprintf("  %s: %v", a.where, a.err))
		}
	}
	return authority{}, fmt.Errorf("%s: %w:\n%s\nPass the CA that has signed it with --certificate-authority.", f.server, errNoAuthority, strings.Join(looked, "\n")) //nolint:staticcheck,revive // lines for a person, the last a sentence
}

// verifies reports why the authority does not verify a chain for a host; nil if it does.
func (a authority) verifies(chain []*x509.Certificate, host string) error {
	opts := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if a.pem != nil {
		certs, err := certutil.ParseCertsPEM(a.pem)
		if err != nil {
			return err
		}
		opts.Roots = x509.NewCertPool()
		for _, c := range certs {
			opts.Roots.AddCert(c)
		}
	}
	_, err := chain[0].Verify(opts)
	return err
}

func systemAuthority(context.Context) []authority {
	return []authority{{where: "CAs of this system"}}
}

// localAuthority is what a server on this machine has written of the certificate that it
// made itself.
func localAuthority(context.Context) []authority {
	path, err := kubeconfigfile.Path("")
	if err != nil {
		return []authority{{where: "a server on this machine", err: err}}
	}
	path += kubeconfigfile.AuthoritySuffix
	pem, err := os.ReadFile(path)
	return []authority{{where: "file " + path, pem: pem, err: err}}
}

// hubAuthorities are those of the chart's certificates, in any namespace that federator
// may run in.
func (f *flags) hubAuthorities(ctx context.Context) []authority {
	where := "Secrets of the hub with label " + tlsSecretLabels
	if f.namespace != "" {
		where += " in namespace " + f.namespace
	}
	hub, err := f.hubClient()
	if err != nil {
		return []authority{{where: where, err: err}}
	}
	list, err := hub.CoreV1().Secrets(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: tlsSecretLabels, FieldSelector: tlsSecretType})
	switch {
	case err != nil && f.namespace == "":
		return []authority{{where: where, err: fmt.Errorf("%w (--namespace restricts the search to federator's namespace)", err)}}
	case err != nil:
		return []authority{{where: where, err: err}}
	case len(list.Items) == 0:
		return []authority{{where: where, err: errors.New("not found")}}
	}
	var found []authority
	for i := range list.Items {
		found = append(found, secretAuthority(&list.Items[i]))
	}
	return found
}

// secretAuthority is the authority of a Secret's certificate: the certificate itself where
// it has signed itself.
func secretAuthority(s *corev1.Secret) authority {
	a := authority{where: "Secret " + s.Namespace + "/" + s.Name + " of the hub"}
	if a.pem = s.Data[corev1.ServiceAccountRootCAKey]; len(a.pem) > 0 {
		return a
	}
	certs, err := certutil.ParseCertsPEM(s.Data[corev1.TLSCertKey])
	switch {
	case err != nil:
		a.err = fmt.Errorf("no %s, and %s: %w", corev1.ServiceAccountRootCAKey, corev1.TLSCertKey, err)
	case certs[0].CheckSignature(certs[0].SignatureAlgorithm, certs[0].RawTBSCertificate, certs[0].Signature) != nil:
		a.err = fmt.Errorf("no %s, and %s was signed by %q", corev1.ServiceAccountRootCAKey, corev1.TLSCertKey, certs[0].Issuer)
	default:
		a.pem = s.Data[corev1.TLSCertKey]
	}
	return a
}

var errHandshakeRead = errors.New("the certificates have been read")

// servedCertificates reads what a server shows. The handshake fails once it is there, so
// that nothing is sent to a server of which nothing has been verified.
func servedCertificates(ctx context.Context, server *url.URL) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	read := make(chan []*x509.Certificate, 1)
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, // as for the requests that follow
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // the handshake is refused in any case
			VerifyConnection: func(s tls.ConnectionState) error {
				select {
				case read <- s.PeerCertificates:
				default: // another attempt of the transport's
				}
				return errHandshakeRead
			},
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(req)
	if err == nil { // not over TLS: newer versions of net/http would have to follow a scheme
		return nil, errors.Join(errors.New("the server does not use TLS"), resp.Body.Close())
	}
	select {
	case chain := <-read:
		if len(chain) == 0 {
			return nil, errors.New("the server sent none")
		}
		return chain, nil
	default:
		return nil, err
	}
}
