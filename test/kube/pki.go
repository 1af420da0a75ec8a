package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is a certificate authority of one control plane.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // the certificate
}

// keyPair is a certificate and its key, as PEM.
type keyPair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: certPEM(der)}, nil
}

// serving issues a certificate for a server on this machine.
func (a *authority) serving(name string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotAfter:    a.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
	})
}

// client issues a certificate that Kubernetes reads as a user in groups.
func (a *authority) client(user string, groups []string, expires time.Time) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		NotAfter:    expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return keyPair{}, err
	}
	template.NotBefore = time.Now().Add(-time.Minute)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("issue certificate for %s: %w", template.Subject.CommonName, err)
	}
	k, err := keyPEM(key)
	return keyPair{cert: certPEM(der), key: k}, err
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// pki is everything that a control plane's processes identify themselves with.
type pki struct {
	ca, frontProxy *authority
	dir            string
}

// newPKI creates the authorities and writes the files that flags name below
// dir.
func newPKI(dir, name string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := newAuthority(name + "-ca")
	if err != nil {
		return nil, err
	}
	front, err := newAuthority(name + "-front-proxy-ca")
	if err != nil {
		return nil, err
	}
	serving, err := ca.serving(name)
	if err != nil {
		return nil, err
	}
	proxy, err := front.client("front-proxy-client", nil, front.cert.NotAfter)
	if err != nil {
		return nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	accountsKey, err := keyPEM(accounts)
	if err != nil {
		return nil, err
	}
	p := &pki{ca: ca, frontProxy: front, dir: dir}
	for file, data := range map[string][]byte{
		"ca.crt": ca.pem, "apiserver.crt": serving.cert, "apiserver.key": serving.key,
		"front-proxy-ca.crt": front.pem, "front-proxy-client.crt": proxy.cert, "front-proxy-client.key": proxy.key,
		"service-accounts.key": accountsKey,
	} {
		if err := os.WriteFile(p.file(file), data, 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// RotateServing replaces the certificate and the key of the control plane's API servers, by ones of
// the same authority. They take them up while they run, for new connections.
func (c *ControlPlane) RotateServing() error {
	pair, err := c.pki.ca.serving(c.Name)
	if err != nil {
		return err
	}
	for file, data := range map[string][]byte{"apiserver.key": pair.key, "apiserver.crt": pair.cert} {
		temporary := c.pki.file(file + ".new")
		if err := os.WriteFile(temporary, data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(temporary, c.pki.file(file)); err != nil {
			return err
		}
	}
	return nil
}

// ServingFiles returns the files of the certificate and the key of the control plane's API servers.
func (c *ControlPlane) ServingFiles() (cert, key string) {
	return c.pki.file("apiserver.crt"), c.pki.file("apiserver.key")
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }
