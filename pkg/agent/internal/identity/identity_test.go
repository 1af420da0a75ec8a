package identity_test

import (
	"crypto/x509"
	"net"
	"net/url"
	"testing"

	"federator.dev/federator/pkg/agent/internal/identity"
)

func TestOf_IsOfOneMember(t *testing.T) {
	want, err := identity.Parse("fleet/edge-1", "0f1f4c0e-95f0-4b34-8a4c-0d8f1f8a2f11")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := identity.Of(&x509.Certificate{URIs: []*url.URL{want.URI()}}); err != nil || got != want {
		t.Errorf("%v %v", got, err)
	}
	for _, text := range []string{
		"federator://member/fleet/edge-1", "federator://member/fleet/edge-1/", "federator://member/fleet/edge-1/uid/more", "federator://member//edge-1/uid",
		"https://member/fleet/edge-1/uid", "federator://other/fleet/edge-1/uid", "federator://member/fleet/edge-1/uid?a=b", "federator://member/fleet/edge-1/uid#a",
		"federator://user@member/fleet/edge-1/uid", "federator://member/fleet%2Fedge-1/edge/uid", "federator://member/fleet/EDGE/uid", "federator:member/fleet/edge-1/uid",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := identity.Of(&x509.Certificate{URIs: []*url.URL{u}}); err == nil {
			t.Errorf("%s is of %v", text, got)
		}
	}
	for _, c := range []*x509.Certificate{
		{}, {URIs: []*url.URL{want.URI(), want.URI()}}, {URIs: []*url.URL{want.URI()}, DNSNames: []string{"a"}}, {URIs: []*url.URL{want.URI()}, IPAddresses: []net.IP{{1, 2, 3, 4}}},
	} {
		if got, err := identity.Of(c); err == nil {
			t.Errorf("it is of %v", got)
		}
	}
}

func TestParse_Refusals(t *testing.T) {
	for _, tc := range [][2]string{{"edge-1", "uid"}, {"a/b/c", "uid"}, {"/b", "uid"}, {"a/", "uid"}, {"a/b", ""}, {"A/b", "uid"}, {"a/b", "u/d"}} {
		if got, err := identity.Parse(tc[0], tc[1]); err == nil {
			t.Errorf("%q is %v", tc, got)
		}
	}
}

func FuzzCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := identity.Certificates(text)
		if err == nil && len(certs) == 0 {
			t.Error("there are none, and no error")
		}
	})
}

func TestDecodeKey_ReadsWhatWasEncoded(t *testing.T) {
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := identity.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := identity.DecodeKey(text); err != nil || !key.Equal(got) {
		t.Errorf("%v %v", got, err)
	}
	for _, text := range []string{"", "key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if got, err := identity.DecodeKey([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
