package hubside

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/agent/internal/identity"
)

// Names of what federator keeps in its namespace.
const (
	// AuthoritySecret has the CAs with their keys, which nobody but federator reads: pairs of keys NAME.crt and
	// NAME.key.
	AuthoritySecret = "federator-agents-ca"
	// PublicSecret has their certificates, for whoever makes a token. They are no secret; but who may write them
	// decides whom new agents serve, and more people may write ConfigMaps of the namespace, which stop corrections.
	PublicSecret = "federator-agents-public"
	// TokenSecret has what is known of tokens that were not used.
	TokenSecret = "federator-agents-tokens"

	secretType     = "federator.dev/agents"
	authoritiesKey = "ca.crt" // of PublicSecret
	certSuffix     = ".crt"
	keySuffix      = ".key"
)

const (
	authorityLife  = 10 * 365 * 24 * time.Hour
	servingLife    = 24 * time.Hour
	clockSkew      = 5 * time.Minute // of agents
	maxAuthorities = 8
)

// authority is one CA. One without a key is trusted only.
type authority struct {
	name string // of its keys in the Secret, which sort by when they were made
	cert *x509.Certificate
	key  crypto.Signer
}

// authorities are all CAs, the oldest first. Agents trust all that there were when they joined or renewed. So the newest
// signs agents, and the oldest federator's own certificate: every agent knows it.
type authorities []authority

// errNoAuthority is the error of a Secret that has no CA that can sign.
var errNoAuthority = errors.New("there is no CA with a key that is valid now")

// parseAuthorities returns the CAs of a Secret.
func parseAuthorities(data map[string][]byte, now time.Time) (authorities, error) {
	var all authorities
	for name, text := range data {
		name, is := strings.CutSuffix(name, certSuffix)
		if !is {
			continue
		}
		certs, err := identity.Certificates(text)
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", name, certSuffix, err)
		}
		a := authority{name: name, cert: certs[0]}
		if !a.cert.IsCA || len(certs) > 1 {
			return nil, fmt.Errorf("%s%s: it is not the certificate of one CA", name, certSuffix)
		}
		if text, has := data[name+keySuffix]; has {
			if a.key, err = parseKey(text, a.cert); err != nil {
				return nil, fmt.Errorf("%s%s: %w", name, keySuffix, err)
			}
		}
		if now.Before(a.cert.NotAfter) {
			all = append(all, a)
		}
	}
	if len(all) > maxAuthorities {
		return nil, fmt.Errorf("there are %d CAs, more than %d", len(all), maxAuthorities)
	}
	slices.SortFunc(all, func(a, b authority) int {
		return cmp.Or(a.cert.NotBefore.Compare(b.cert.NotBefore), strings.Compare(a.name, b.name))
	})
	if all.newest(now).key == nil {
		return nil, errNoAuthority
	}
	return all, nil
}

func parseKey(text []byte, cert *x509.Certificate) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
			return nil, errors.New("it is not a private key of PKCS #8")
		}
	}
	signer, is := key.(crypto.Signer)
	if !is {
		return nil, errors.New("it is not a key that signs")
	}
	public, is := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !is || !public.Equal(cert.PublicKey) {
		return nil, errors.New("it is not the key of the certificate")
	}
	return signer, nil
}

// newest is what signs agents' certificates, and oldest what signs federator's own.
func (all authorities) newest(now time.Time) authority {
	for _, a := range slices.Backward(all) {
		if a.signs(now) {
			return a
		}
	}
	return authority{}
}

func (all authorities) oldest(now time.Time) authority {
	for _, a := range all {
		if a.signs(now) {
			return a
		}
	}
	return authority{}
}

func (a authority) signs(now time.Time) bool { return a.key != nil && !now.Before(a.cert.NotBefore) }

func (all authorities) certificates() []*x509.Certificate {
	out := make([]*x509.Certificate, len(all))
	for i := range all {
		out[i] = all[i].cert
	}
	return out
}

// sign returns a certificate for a public key.
func (a authority) sign(template *x509.Certificate, public crypto.PublicKey, now time.Time, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-min(clockSkew, life/4)), now.Add(life)
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.KeyUsage, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// signAgent returns the certificate of a member's agent.
func (a authority) signAgent(of identity.Identity, public crypto.PublicKey, now time.Time, life time.Duration) (*x509.Certificate, error) {
	return a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "federator agent"}, URIs: []*url.URL{of.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, public, now, life)
}

// serving returns federator's own certificate. Its chain has the CA, by whose digest agents that have nothing but a
// token verify it.
func (a authority) serving(hosts []string, now time.Time) (*tls.Certificate, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "federator"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	leaf, err := a.sign(template, key.Public(), now, servingLife)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// newAuthority returns a CA, as the data of a Secret. Its name sorts by the time that it was made.
func newAuthority(now time.Time) (map[string][]byte, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "federator agents " + now.UTC().Format(time.DateTime)},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	text, err := identity.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	name := now.UTC().Format("20060102-150405.000")
	return map[string][]byte{name + certSuffix: identity.Encode(cert), name + keySuffix: text}, nil
}

// ensureAuthority creates the Secrets that there are not, and the first CA. Of several processes that do, one wins, and
// the others use what it has made.
func ensureAuthority(ctx context.Context, client kubernetes.Interface, namespace string, now time.Time) error {
	secrets := client.CoreV1().Secrets(namespace)
	for _, name := range []string{AuthoritySecret, PublicSecret, TokenSecret} {
		s, err := secrets.Get(ctx, name, metav1.GetOptions{})
		there := err == nil
		switch {
		case apierrors.IsNotFound(err):
			s, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: secretType}, nil
		case there && (name != AuthoritySecret || len(s.Data) > 0):
			continue
		}
		if err == nil && name == AuthoritySecret {
			s.Data, err = newAuthority(now)
		}
		switch {
		case err != nil:
		case there: // somebody has made an empty one, as the chart does
			_, err = secrets.Update(ctx, s, metav1.UpdateOptions{}) // only if it is as it was read
		default:
			_, err = secrets.Create(ctx, s, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("Secret %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}

// publish has PublicSecret say which CAs there are.
func (all authorities) publish(ctx context.Context, client kubernetes.Interface, namespace string) error {
	secrets, text := client.CoreV1().Secrets(namespace), identity.Encode(all.certificates()...)
	now, err := secrets.Get(ctx, PublicSecret, metav1.GetOptions{})
	if err == nil && !bytes.Equal(now.Data[authoritiesKey], text) {
		now.Data = map[string][]byte{authoritiesKey: text}
		_, err = secrets.Update(ctx, now, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) {
		return nil // another process says the same
	}
	if err != nil {
		return fmt.Errorf("Secret %s/%s: %w", namespace, PublicSecret, err)
	}
	return nil
}
