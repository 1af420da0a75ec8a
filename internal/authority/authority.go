// Package authority has CAs that a Secret keeps, as pairs of keys NAME.crt and NAME.key: what is common to those of agents and those of
// processes that share a fleet. Which of them signs, and how many there may be, is theirs to decide.
//
// What a Secret has is read leniently: one bad entry keeps no good one out. A CA without a key is trusted, and signs nothing.
package authority

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
)

// Suffixes of the keys of a Secret.
const (
	CertSuffix = ".crt"
	KeySuffix  = ".key"
)

// ErrNone is the error of CAs none of which can sign.
var ErrNone = errors.New("there is no CA with a key that is valid now")

// CA is one CA.
type CA struct {
	Name string // of its keys in the Secret, which sort by when they were made
	Cert *x509.Certificate
	Key  crypto.Signer // nil: it is trusted only
}

// Parse returns the CAs of a Secret, the oldest first, without those that have expired, and what of it is not usable.
func Parse(data map[string][]byte, now time.Time) (all []CA, skipped []error) {
	for _, file := range slices.Sorted(maps.Keys(data)) {
		name, is := strings.CutSuffix(file, CertSuffix)
		if !is {
			continue
		}
		cert, err := parseCertificate(data[file])
		if err != nil {
			skipped = append(skipped, fmt.Errorf("%s: %w", file, err))
			continue
		}
		a := CA{Name: name, Cert: cert}
		if text, has := data[name+KeySuffix]; has {
			if a.Key, err = parseKey(text, cert); err != nil {
				skipped = append(skipped, fmt.Errorf("%s%s: %w", name, KeySuffix, err))
			}
		}
		if now.Before(cert.NotAfter) {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b CA) int {
		return cmp.Or(a.Cert.NotBefore.Compare(b.Cert.NotBefore), strings.Compare(a.Name, b.Name))
	})
	return all, skipped
}

// Expired returns the names of those CAs of a Secret that have expired.
func Expired(data map[string][]byte, now time.Time) (names []string) {
	for file, text := range data {
		name, is := strings.CutSuffix(file, CertSuffix)
		if cert, err := parseCertificate(text); is && err == nil && !now.Before(cert.NotAfter) {
			names = append(names, name)
		}
	}
	return names
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(text)
	if another, _ := pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || another != nil {
		return nil, errors.New("it is not one certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("it is not the certificate of one CA")
	}
	return cert, nil
}

// parseKey returns nil with an error, which repeats nothing of the key.
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

// Signs reports whether it can sign what is valid now.
func (a CA) Signs(now time.Time) bool {
	return a.Key != nil && !now.Before(a.Cert.NotBefore) && now.Before(a.Cert.NotAfter)
}

// Sign returns a certificate for a public key, of what a template says of its subject and use, which lives for a while, from a little before now,
// and no longer than the CA.
func (a CA) Sign(template *x509.Certificate, public crypto.PublicKey, now time.Time, skew, life time.Duration) (*x509.Certificate, error) {
	if a.Key == nil {
		return nil, ErrNone
	}
	var err error
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(life)
	if template.NotAfter.After(a.Cert.NotAfter) {
		template.NotAfter = a.Cert.NotAfter
	}
	template.KeyUsage, template.BasicConstraintsValid = x509.KeyUsageDigitalSignature, true
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, public, a.Key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// NewKey returns a private key, as all certificates have them.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// New returns a CA that is valid from a time on, as the data of a Secret. Its name sorts by that time; its subject is a prefix, and that time.
func New(subject string, from time.Time, life time.Duration) (map[string][]byte, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: subject + " " + from.UTC().Format(time.DateTime)},
		NotBefore: from, NotAfter: from.Add(life),
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
	// Two may begin in one second, elsewhere.
	name := fmt.Sprintf("%s-%.8x", from.UTC().Format("20060102-150405"), serial.FillBytes(make([]byte, 16)))
	return map[string][]byte{
		name + CertSuffix: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		name + KeySuffix:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	}, nil
}

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}
