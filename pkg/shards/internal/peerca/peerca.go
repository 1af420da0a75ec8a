// Package peerca makes the certificates by which the processes of a fleet know each other.
//
// A Secret has the CAs, as pairs of keys NAME.crt and NAME.key. All that are there are trusted, and the newest that is valid signs.
// One that is added becomes valid a while later, so that all processes trust it before any of them uses it. A certificate is of
// one process, by its ID, and is shown both as a server's and as a client's.
package peerca

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/internal/authority"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

const (
	// Life is how long a certificate of a process is valid.
	Life = 24 * time.Hour

	authorityLife = 365 * 24 * time.Hour
	lead          = 10 * time.Minute // from when a CA is added until it signs
	skew          = 5 * time.Minute  // of processes' clocks
	most          = 8
)

// ErrNone is the error of a Secret that has no CA that can sign.
var ErrNone = authority.ErrNone

// Authorities are the CAs, the oldest first.
type Authorities struct {
	all  []authority.CA
	Pool *x509.CertPool
}

// Parse returns the CAs of a Secret, without those that have expired, and what of it is not usable.
func Parse(data map[string][]byte, now time.Time) (*Authorities, []error, error) {
	out := &Authorities{Pool: x509.NewCertPool()}
	all, skipped := authority.Parse(data, now)
	out.all = all
	if n := len(out.all); n > most {
		skipped = append(skipped, fmt.Errorf("there are %d CAs: the oldest above %d are left out", n, most))
		out.all = out.all[n-most:]
	}
	for _, a := range out.all {
		out.Pool.AddCert(a.Cert)
	}
	if out.signer(now) == nil {
		return out, skipped, ErrNone
	}
	return out, skipped, nil
}

// signer returns the newest CA that is valid, or nil.
func (a *Authorities) signer(now time.Time) *authority.CA {
	for i := range slices.Backward(a.all) {
		if c := &a.all[i]; c.Signs(now) {
			return c
		}
	}
	return nil
}

// Expires is when the newest CA that can sign does.
func (a *Authorities) Expires() time.Time {
	for _, c := range slices.Backward(a.all) {
		if c.Key != nil {
			return c.Cert.NotAfter
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
	key, err := authority.NewKey()
	if err != nil {
		return nil, err
	}
	leaf, err := by.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "federator peer"}, DNSNames: []string{id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key.Public(), now, skew, Life)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// ID returns which process a verified certificate is of.
func ID(cert *x509.Certificate) (string, error) {
	if len(cert.DNSNames) != 1 || len(cert.IPAddresses)+len(cert.URIs)+len(cert.EmailAddresses) > 0 || shardmap.CheckID(cert.DNSNames[0]) != nil {
		return "", errors.New("the certificate is not of one process")
	}
	return cert.DNSNames[0], nil
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
		if last := all.all[n-1].Cert.NotBefore.Add(time.Second); from.Before(last) {
			from = last
		}
		if n >= most {
			return nil, fmt.Errorf("there are %d CAs: drop the old ones before there can be another", n)
		}
	}
	added, err := authority.New("federator shards", from, authorityLife)
	if err != nil {
		return nil, err
	}
	out := maps.Clone(data)
	if out == nil {
		out = map[string][]byte{}
	}
	for _, name := range authority.Expired(data, now) {
		delete(out, name+authority.CertSuffix)
		delete(out, name+authority.KeySuffix)
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
		return nil, fmt.Errorf("the newest CA, %s, has no key, or is not valid before %s: the old ones are still needed", keep.Name, keep.Cert.NotBefore.Format(time.RFC3339))
	}
	out := maps.Clone(data)
	maps.DeleteFunc(out, func(file string, _ []byte) bool {
		name, cert := strings.CutSuffix(file, authority.CertSuffix)
		if !cert {
			var key bool
			if name, key = strings.CutSuffix(file, authority.KeySuffix); !key {
				return false
			}
		}
		return name != keep.Name
	})
	return out, nil
}
