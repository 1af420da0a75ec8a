package hubside

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/agent/internal/identity"
)

// Names of what federator keeps in its namespace.
const (
	// AuthoritySecret has the CAs with their keys, which nobody but federator reads: pairs of keys NAME.crt and
	// NAME.key.
	AuthoritySecret = "federator-agents-ca"
	// PublicSecret has their certificates, for those who make tokens. They are no secret; but who may write them
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
	servingLeft    = time.Hour           // of a CA's life, for federator to show a certificate of it
	warnBefore     = 60 * 24 * time.Hour // that the newest CA expires
	clockSkew      = 5 * time.Minute     // of agents
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

// parseAuthorities returns the CAs of a Secret, without those that have expired. What cannot be used is left out, and why: one
// bad entry does not keep all agents out.
func parseAuthorities(data map[string][]byte, now time.Time) (all authorities, skipped []error, err error) {
	skip := func(name, suffix string, err error) {
		skipped = append(skipped, fmt.Errorf("%s%s: %w", name, suffix, err))
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		base, is := strings.CutSuffix(name, certSuffix)
		if !is {
			continue
		}
		certs, err := identity.Certificates(data[name])
		if err == nil && (!certs[0].IsCA || len(certs) > 1) {
			err = errors.New("it is not the certificate of one CA")
		}
		if err != nil {
			skip(base, certSuffix, err)
			continue
		}
		a := authority{name: base, cert: certs[0]}
		if text, has := data[base+keySuffix]; has {
			if a.key, err = parseKey(text, a.cert); err != nil { // it is trusted, and signs nothing
				skip(base, keySuffix, err)
			}
		}
		if now.Before(a.cert.NotAfter) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b authority) int {
		return cmp.Or(a.cert.NotBefore.Compare(b.cert.NotBefore), strings.Compare(a.name, b.name))
	})
	for n, a := range all {
		if n >= maxAuthorities { // nothing is of these yet, as they are left out since they came
			skip(a.name, certSuffix, fmt.Errorf("there are more than %d CAs, and this is none of the oldest", maxAuthorities))
		}
	}
	all = all[:min(len(all), maxAuthorities)]
	if all.newest(now).key == nil {
		return all, skipped, errNoAuthority
	}
	return all, skipped, nil
}

// parseKey returns nil with an error.
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

// newest is what signs agents' certificates, and oldest what signs federator's own: it gives way to the next one when it
// is about to expire.
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
		if a.signs(now) && a.cert.NotAfter.Sub(now) > servingLeft {
			return a
		}
	}
	return all.newest(now)
}

// signs reports whether it can sign what is valid now.
func (a authority) signs(now time.Time) bool {
	return a.key != nil && !now.Before(a.cert.NotBefore) && now.Before(a.cert.NotAfter)
}

// digests are what the CAs are known by.
func (all authorities) digests() map[[sha256.Size]byte]bool {
	out := map[[sha256.Size]byte]bool{}
	for _, a := range all {
		out[identity.Digest(a.cert)] = true
	}
	return out
}

func (all authorities) certificates() []*x509.Certificate {
	out := make([]*x509.Certificate, len(all))
	for i := range all {
		out[i] = all[i].cert
	}
	return out
}

// sign returns a certificate for a public key.
func (a authority) sign(template *x509.Certificate, public crypto.PublicKey, now time.Time, life time.Duration) (*x509.Certificate, error) {
	if a.key == nil {
		return nil, errNoAuthority
	}
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

// next returns another CA, as the data of a Secret. It is the newest, however late the clock is of who makes it.
func (all authorities) next(now time.Time) (map[string][]byte, error) {
	notBefore := now.Add(-clockSkew)
	for _, a := range all {
		if least := a.cert.NotBefore.Add(time.Second); notBefore.Before(least) { // certificates have seconds
			notBefore = least
		}
	}
	if notBefore.After(now.Add(24 * time.Hour)) {
		return nil, fmt.Errorf("there is a CA that is not valid before %s, after which another one would come: remove it", notBefore.Format(time.RFC3339))
	}
	return newAuthority(notBefore)
}

// newAuthority returns a CA that is valid from a time on, as the data of a Secret. Its name sorts by that time.
func newAuthority(notBefore time.Time) (map[string][]byte, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "federator agents " + notBefore.UTC().Format(time.DateTime)},
		NotBefore: notBefore, NotAfter: notBefore.Add(authorityLife),
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
	name := fmt.Sprintf("%s-%.8x", notBefore.UTC().Format("20060102-150405"), serial.FillBytes(make([]byte, 16))) // two may begin in one second, elsewhere
	return map[string][]byte{name + certSuffix: identity.Encode(cert), name + keySuffix: text}, nil
}

// data is what a Secret has of the CAs.
func (all authorities) data() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, a := range all {
		out[a.name+certSuffix] = identity.Encode(a.cert)
		if a.key == nil {
			continue
		}
		text, err := identity.EncodeKey(a.key)
		if err != nil {
			return nil, err
		}
		out[a.name+keySuffix] = text
	}
	return out, nil
}
