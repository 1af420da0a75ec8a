// Package peerca makes the certificates by which the processes of a fleet know each other.
//
// A Secret has the CAs, as pairs of keys NAME.crt and NAME.key. All that are there are trusted, and the newest that is valid signs.
// One that is added becomes valid a while later, so that all processes trust it before any of them uses it. A certificate is of
// one process, by its ID, and is shown both as a server's and as a client's.
package peerca

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/shards/internal/shardmap"
)

const (
	// Life is how long a certificate of a process is valid.
	Life = 24 * time.Hour

	authorityLife = 365 * 24 * time.Hour
	lead          = 10 * time.Minute // from when a CA is added until it signs
	skew          = 5 * time.Minute  // of processes' clocks
	most          = 8

	certSuffix = ".crt"
	keySuffix  = ".key"
)

// ErrNone is the error of a Secret that has no CA that can sign.
var ErrNone = errors.New("there is no CA with a key that is valid now")

type authority struct {
	name string
	cert *x509.Certificate
	key  crypto.Signer // nil: it is trusted only
}

// Authorities are the CAs, the oldest first.
type Authorities struct {
	all  []authority
	Pool *x509.CertPool
}

// Parse returns the CAs of a Secret, without those that have expired, and what of it is not usable.
func Parse(data map[string][]byte, now time.Time) (*Authorities, []error, error) {
	out, skipped := &Authorities{Pool: x509.NewCertPool()}, []error(nil)
	for _, file := range slices.Sorted(maps.Keys(data)) {
		name, is := strings.CutSuffix(file, certSuffix)
		if !is {
			continue
		}
		cert, err := parseCertificate(data[file])
		if err != nil {
			skipped = append(skipped, fmt.Errorf("%s: %w", file, err))
			continue
		}
		a := authority{name: name, cert: cert}
		if text, has := data[name+keySuffix]; has {
			if a.key, err = parseKey(text, cert); err != nil {
				skipped = append(skipped, fmt.Errorf("%s%s: %w", name, keySuffix, err))
			}
		}
		if now.Before(cert.NotAfter) {
			out.all = append(out.all, a)
		}
	}
	slices.SortFunc(out.all, func(a, b authority) int {
		return cmp.Or(a.cert.NotBefore.Compare(b.cert.NotBefore), strings.Compare(a.name, b.name))
	})
	if n := len(out.all); n > most {
		skipped = append(skipped, fmt.Errorf("there are %d CAs: the oldest above %d are left out", n, most))
		out.all = out.all[n-most:]
	}
	for _, a := range out.all {
		out.Pool.AddCert(a.cert)
	}
	if out.signer(now) == nil {
		return out, skipped, ErrNone
	}
	return out, skipped, nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("it is not one certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("it is not the certificate of a CA")
	}
	return cert, nil
}

func parseKey(text []byte, cert *x509.Certificate) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is not a private key of PKCS #8") // the parser's error may repeat a secret
	}
	key, is := parsed.(crypto.Signer)
	if !is {
		return nil, errors.New("it is not a key that signs")
	}
	public, is := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !is || !public.Equal(cert.PublicKey) {
		return nil, errors.New("it is not the key of the certificate")
	}
	return key, nil
}

// signer returns the newest CA that is valid, or nil.
func (a *Authorities) signer(now time.Time) *authority {
	for i := range slices.Backward(a.all) {
		if c := &a.all[i]; c.key != nil && !now.Before(c.cert.NotBefore) && now.Before(c.cert.NotAfter) {
			return c
		}
	}
	return nil
}

// Expires is when the newest CA that can sign does.
func (a *Authorities) Expires() time.Time {
	for _, c := range slices.Backward(a.all) {
		if c.key != nil {
			return c.cert.NotAfter
		}
	}
	return time.Time{}
}

// Certificate returns a certificate for a process.
func (a *Authorities) Certificate(id string, now time.Time) (*tls.Certificate, error) {
	by := a.signer(now)
	if by == nil {
		return nil, ErrNone
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "federator peer"}, DNSNames: []string{id},
		NotBefore: now.Add(-skew), NotAfter: now.Add(Life), KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.After(by.cert.NotAfter) {
		template.NotAfter = by.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// ID returns which process a verified certificate is of.
func ID(cert *x509.Certificate) (string, error) {
	if len(cert.DNSNames) != 1 || len(cert.IPAddresses)+len(cert.URIs)+len(cert.EmailAddresses) > 0 || shardmap.CheckID(cert.DNSNames[0]) != nil {
		return "", errors.New("the certificate is not of one process")
	}
	return cert.DNSNames[0], nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// Renewed returns the data of a Secret that needs another CA, with one, or nil where it needs none: when there is none, or half of
// the life of the newest has passed. CAs that have expired are dropped.
func Renewed(data map[string][]byte, now time.Time) (map[string][]byte, error) {
	all, _, err := Parse(data, now)
	if err == nil && all.Expires().Sub(now) > authorityLife/2 {
		return nil, nil
	}
	return Added(data, now)
}

// Added returns the data of a Secret with one more CA.
func Added(data map[string][]byte, now time.Time) (map[string][]byte, error) {
	all, _, err := Parse(data, now)
	if err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	from := now.Add(lead)
	if errors.Is(err, ErrNone) { // nobody waits for it, or everybody does
		from = now.Add(-skew)
	}
	if n := len(all.all); n > 0 {
		if last := all.all[n-1].cert.NotBefore.Add(time.Second); from.Before(last) {
			from = last
		}
		if n >= most {
			return nil, fmt.Errorf("there are %d CAs: drop the old ones before there can be another", n)
		}
	}
	added, err := newAuthority(from)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(data)
	if out == nil {
		out = map[string][]byte{}
	}
	for file, text := range data {
		name, is := strings.CutSuffix(file, certSuffix)
		if cert, err := parseCertificate(text); is && err == nil && !now.Before(cert.NotAfter) {
			delete(out, file)
			delete(out, name+keySuffix)
		}
	}
	maps.Copy(out, added)
	return out, nil
}

// Newest returns the data of a Secret with its newest CA alone.
func Newest(data map[string][]byte, now time.Time) (map[string][]byte, error) {
	all, _, err := Parse(data, now)
	if err != nil {
		return nil, err
	}
	if len(all.all) < 2 {
		return nil, errors.New("there is one CA, and no old one to drop")
	}
	keep := &all.all[len(all.all)-1]
	if all.signer(now) != keep {
		return nil, fmt.Errorf("the newest CA, %s, has no key, or is not valid before %s: the old ones are still needed", keep.name, keep.cert.NotBefore.Format(time.RFC3339))
	}
	out := maps.Clone(data)
	maps.DeleteFunc(out, func(file string, _ []byte) bool {
		name, suffix := file[:max(len(file)-len(certSuffix), 0)], file[max(len(file)-len(certSuffix), 0):]
		return (suffix == certSuffix || suffix == keySuffix) && name != keep.name
	})
	return out, nil
}

func newAuthority(from time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "federator shards " + from.UTC().Format(time.DateTime)},
		NotBefore: from, NotAfter: from.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%.8x", from.UTC().Format("20060102-150405"), serial.FillBytes(make([]byte, 16)))
	return map[string][]byte{
		name + certSuffix: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		name + keySuffix:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	}, nil
}
