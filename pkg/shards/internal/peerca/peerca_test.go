package peerca_test

import (
	"crypto/x509"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/peerca"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, data map[string][]byte, now time.Time) *peerca.Authorities {
	t.Helper()
	all, skipped, err := peerca.Parse(data, now)
	must(t, errors.Join(append(skipped, err)...))
	return all
}

func verifies(all *peerca.Authorities, cert *x509.Certificate, id string, now time.Time) bool {
	_, err := cert.Verify(x509.VerifyOptions{Roots: all.Pool, DNSName: id, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	_, err2 := cert.Verify(x509.VerifyOptions{Roots: all.Pool, DNSName: id, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil && err2 == nil
}

// TestAuthorities_RotateWithoutAGap: who knows the CAs as they were a moment ago verifies what others show, from the first one to
// the one after it, whenever the Secret is looked after.
func TestAuthorities_RotateWithoutAGap(t *testing.T) {
	now := time.Now()
	data, err := peerca.Renewed(nil, now)
	must(t, err)
	var old, before *peerca.Authorities
	cas := map[string]bool{}
	for range 3 * 365 / 4 {
		now = now.Add(4 * 24 * time.Hour)
		for range 2 { // then ten minutes later: the next one signs
			more, err := peerca.Renewed(data, now)
			must(t, err)
			before = parse(t, data, now)
			if more != nil {
				data = more
			}
			for name := range data {
				cas[name] = true
			}
			all := parse(t, data, now)
			cert, err := all.Certificate("federator-1", now)
			must(t, err)
			if !verifies(all, cert.Leaf, "federator-1", now) || !verifies(before, cert.Leaf, "federator-1", now) {
				t.Fatalf("%s: a certificate is not verified", now)
			}
			if verifies(all, cert.Leaf, "federator-2", now) {
				t.Fatal("it is another process's, too")
			}
			if old != nil && now.Before(cert.Leaf.NotAfter) && cert.Leaf.NotAfter.Sub(now) > peerca.Life+time.Minute {
				t.Fatal("it lives too long")
			}
			old = all
			now = now.Add(10 * time.Minute)
		}
	}
	if len(cas) < 8 || len(data) > 6 {
		t.Errorf("%d files were there, %d are left", len(cas), len(data))
	}
}

// TestAuthorities_RefuseWhatIsWrong: a bad entry keeps no good one out, and no key is used that is not the certificate's.
func TestAuthorities_RefuseWhatIsWrong(t *testing.T) {
	now := time.Now()
	first, err := peerca.Renewed(nil, now)
	must(t, err)
	other, err := peerca.Renewed(nil, now)
	must(t, err)
	data := maps.Clone(first)
	data["bad.crt"], data["bad.key"], data["comment"] = []byte("x"), []byte("y"), []byte("z")
	all, skipped, err := peerca.Parse(data, now)
	must(t, err)
	if len(skipped) != 1 {
		t.Errorf("%v", skipped)
	}
	cert, err := all.Certificate("a", now)
	must(t, err)
	if verifies(parse(t, other, now), cert.Leaf, "a", now) {
		t.Error("another CA verifies it")
	}
	swapped := map[string][]byte{}
	for name, text := range first {
		if strings.HasSuffix(name, ".crt") {
			swapped["x.crt"] = text
		}
	}
	for name, text := range other {
		if strings.HasSuffix(name, ".key") {
			swapped["x.key"] = text
		}
	}
	if _, _, err := peerca.Parse(swapped, now); !errors.Is(err, peerca.ErrNone) {
		t.Errorf("a key of another certificate: %v", err)
	}
	if _, err := peerca.Newest(first, now); err == nil {
		t.Error("the only one is dropped")
	}
	two, err := peerca.Added(first, now)
	must(t, err)
	if _, err := peerca.Newest(two, now); err == nil {
		t.Error("one is left that is not valid yet")
	}
	left, err := peerca.Newest(two, now.Add(time.Hour))
	must(t, err)
	if len(left) != 2 || verifies(parse(t, left, now.Add(time.Hour)), cert.Leaf, "a", now.Add(time.Hour)) {
		t.Errorf("%d files are left, or the old one is", len(left))
	}
}
