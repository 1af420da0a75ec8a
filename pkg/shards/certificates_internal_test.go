package shards

import (
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/peerca"
)

// TestOwn_ACertificateIsValidWhereTheClockWasSetBack by more than the clocks of processes may differ.
func TestOwn_ACertificateIsValidWhereTheClockWasSetBack(t *testing.T) {
	now := time.Now()
	data, err := peerca.Renewed(nil, now.Add(-24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	all, skipped, err := peerca.Parse(data, now)
	if err = errors.Join(append(skipped, err)...); err != nil {
		t.Fatal(err)
	}
	s := &Shards{o: Options{ID: "federator-1"}}
	s.authorities.Store(all)
	made := 0
	var last []byte
	for _, at := range []time.Duration{0, time.Minute, -4 * time.Minute, -time.Hour, -time.Hour + time.Minute, 6 * time.Hour, 13 * time.Hour} {
		cert, _, err := s.ownAt(now.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		if string(last) != string(cert.Leaf.Raw) {
			made++
			last = cert.Leaf.Raw
		}
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: all.Pool, DNSName: "federator-1", CurrentTime: now.Add(at)}); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
	if made != 3 {
		t.Errorf("%d certificates were made, and not one at the start, one for the clock and one after half of its life", made)
	}
}
