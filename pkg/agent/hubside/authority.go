package hubside

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"federator.dev/federator/internal/authority"
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
	certSuffix     = authority.CertSuffix
	keySuffix      = authority.KeySuffix
)

const (
	authorityLife  = 10 * 365 * 24 * time.Hour
	servingLife    = 24 * time.Hour
	servingLeft    = time.Hour           // of a CA's life, for federator to show a certificate of it
	warnBefore     = 60 * 24 * time.Hour // that the newest CA expires
	clockSkew      = 5 * time.Minute     // of agents
	maxAuthorities = 8
)

// authorities are all CAs, the oldest first. Agents trust all that there were when they joined or renewed. So the newest
// signs agents, and the oldest federator's own certificate: every agent knows it.
type authorities []authority.CA

// parseAuthorities returns the CAs of a Secret, without those that have expired. What cannot be used is left out, and why: one
// bad entry does not keep all agents out.
func parseAuthorities(data map[string][]byte, now time.Time) (all authorities, skipped []error, err error) {
	all, skipped = authority.Parse(data, now)
	for n, a := range all {
		if n >= maxAuthorities { // nothing is of these yet, as they are left out since they came
			skipped = append(skipped, fmt.Errorf("%s%s: there are more than %d CAs, and this is none of the oldest", a.Name, certSuffix, maxAuthorities))
		}
	}
	all = all[:min(len(all), maxAuthorities)]
	if all.newest(now).Key == nil {
		return all, skipped, authority.ErrNone
	}
	return all, skipped, nil
}

// newest is what signs agents' certificates, and oldest what signs federator's own: it gives way to the next one when it
// is about to expire.
func (all authorities) newest(now time.Time) authority.CA {
	for _, a := range slices.Backward(all) {
		if a.Signs(now) {
			return a
		}
	}
	return authority.CA{}
}

func (all authorities) oldest(now time.Time) authority.CA {
	for _, a := range all {
		if a.Signs(now) && a.Cert.NotAfter.Sub(now) > servingLeft {
			return a
		}
	}
	return all.newest(now)
}

// digests are what the CAs are known by.
func (all authorities) digests() map[[sha256.Size]byte]bool {
	out := map[[sha256.Size]byte]bool{}
	for _, a := range all {
		out[identity.Digest(a.Cert)] = true
	}
	return out
}

func (all authorities) certificates() []*x509.Certificate {
	out := make([]*x509.Certificate, len(all))
	for i := range all {
		out[i] = all[i].Cert
	}
	return out
}

// signAgent returns the certificate of a member's agent.
func signAgent(a authority.CA, of identity.Identity, public crypto.PublicKey, now time.Time, life time.Duration) (*x509.Certificate, error) {
	return a.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "federator agent"}, URIs: []*url.URL{of.URI()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, public, now, min(clockSkew, life/4), life)
}

// serving returns federator's own certificate. Its chain has the CA, by whose digest agents that have nothing but a
// token verify it.
func serving(a authority.CA, hosts []string, now time.Time) (*tls.Certificate, error) {
	key, err := authority.NewKey()
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
	leaf, err := a.Sign(template, key.Public(), now, clockSkew, servingLife)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.Cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// next returns another CA, as the data of a Secret. It is the newest, however late the clock is of who makes it.
func (all authorities) next(now time.Time) (map[string][]byte, error) {
	notBefore := now.Add(-clockSkew)
	for _, a := range all {
		if least := a.Cert.NotBefore.Add(time.Second); notBefore.Before(least) { // certificates have seconds
			notBefore = least
		}
	}
	if notBefore.After(now.Add(24 * time.Hour)) {
		return nil, fmt.Errorf("there is a CA that is not valid before %s, after which another one would come: remove it", notBefore.Format(time.RFC3339))
	}
	return newAuthority(notBefore)
}

// newAuthority returns a CA that is valid from a time on, as the data of a Secret.
func newAuthority(notBefore time.Time) (map[string][]byte, error) {
	return authority.New("federator agents", notBefore, authorityLife)
}

// data is what a Secret has of the CAs.
func (all authorities) data() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, a := range all {
		out[a.Name+certSuffix] = identity.Encode(a.Cert)
		if a.Key == nil {
			continue
		}
		text, err := identity.EncodeKey(a.Key)
		if err != nil {
			return nil, err
		}
		out[a.Name+keySuffix] = text
	}
	return out, nil
}
