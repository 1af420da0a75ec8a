// Package identity says which member a certificate is of, and reads and makes keys and certificates.
package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Identity is that of a member: of one Member object, so that one of the same name that is created later is another.
type Identity struct{ Namespace, Name, UID string }

const scheme, host = "federator", "member"

// Member is the name of the member.
func (i Identity) Member() string { return i.Namespace + "/" + i.Name }

// Parse returns the identity of a member of which name is <namespace>/<name>.
func Parse(name, uid string) (Identity, error) {
	namespace, name, _ := strings.Cut(name, "/")
	i := Identity{Namespace: namespace, Name: name, UID: uid}
	return i, i.validate()
}

func (i Identity) validate() error {
	if len(validation.IsDNS1123Label(i.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(i.Name)) > 0 {
		return errors.New("it is not <namespace>/<name> of a Member")
	}
	if i.UID == "" || len(i.UID) > 128 || len(validation.IsDNS1123Subdomain(i.UID)) > 0 {
		return errors.New("the UID is none of a Member")
	}
	return nil
}

// URI is how a certificate names it.
func (i Identity) URI() *url.URL {
	return &url.URL{Scheme: scheme, Host: host, Path: "/" + i.Namespace + "/" + i.Name + "/" + i.UID}
}

var errIdentity = errors.New("the certificate is not of one member")

// Of returns the identity that a verified certificate has.
func Of(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || len(c.DNSNames)+len(c.IPAddresses)+len(c.EmailAddresses) > 0 {
		return Identity{}, errIdentity
	}
	u := c.URIs[0]
	parts := strings.Split(u.Path, "/")
	if len(parts) != 4 || parts[0] != "" {
		return Identity{}, errIdentity
	}
	i := Identity{Namespace: parts[1], Name: parts[2], UID: parts[3]}
	if i.validate() != nil || u.String() != i.URI().String() {
		return Identity{}, errIdentity
	}
	return i, nil
}

// Digest is the digest of a certificate's public key.
func Digest(c *x509.Certificate) [sha256.Size]byte { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// NewKey returns a private key.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

const (
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
	maxCertificates = 16
)

// EncodeKey returns a key as PEM.
func EncodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}

// DecodeKey reads what EncodeKey has returned.
func DecodeKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != keyType {
		return nil, errors.New("it is no key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is no key of PKCS #8") // the parser's error may repeat a secret
	}
	signer, is := key.(crypto.Signer)
	if !is {
		return nil, errors.New("it is no key that signs")
	}
	return signer, nil
}

// Encode returns certificates as PEM.
func Encode(certificates ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: c.Raw})...)
	}
	return out
}

// Certificates returns the certificates of a PEM text, at least one and a few at most.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != certificateType {
			return nil, fmt.Errorf("there is something else than certificates: %.40q", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if out = append(out, c); len(out) > maxCertificates {
			return nil, fmt.Errorf("there are more than %d certificates", maxCertificates)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return out, nil
}

// Pool returns the certificates as those that others are verified by.
func Pool(certificates []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}
