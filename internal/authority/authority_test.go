package authority_test

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"maps"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/internal/authority"
)

func made(t *testing.T, from ...time.Time) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, at := range from {
		data, err := authority.New("federator test", at, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(out, data)
	}
	return out
}

// TestParse_LeavesOutWhatIsWrong, and nothing else: entries that are none, keys of others, CAs that have expired.
func TestParse_LeavesOutWhatIsWrong(t *testing.T) {
	now := time.Now()
	data := made(t, now.Add(-30*time.Minute), now.Add(-time.Minute), now.Add(-2*time.Hour))
	var names []string
	all, skipped := authority.Parse(data, now)
	for _, a := range all {
		names = append(names, a.Name)
	}
	if len(all) != 2 || len(skipped) != 0 || !all[0].Cert.NotBefore.Before(all[1].Cert.NotBefore) || !all[0].Signs(now) {
		t.Fatalf("%v, skipped %v", names, skipped)
	}
	if gone := authority.Expired(data, now); len(gone) != 1 || gone[0] == names[0] || gone[0] == names[1] {
		t.Errorf("expired: %v", gone)
	}
	data[names[0]+authority.KeySuffix] = data[names[1]+authority.KeySuffix]
	data["two.crt"] = bytes.Join([][]byte{data[names[0]+authority.CertSuffix], data[names[1]+authority.CertSuffix]}, nil)
	data["bad.crt"] = []byte("x")
	all, skipped = authority.Parse(data, now)
	if len(all) != 2 || all[0].Key != nil || all[0].Signs(now) || all[1].Key == nil || len(skipped) != 3 {
		t.Errorf("%d CAs, skipped %v", len(all), skipped)
	}
	for _, err := range skipped {
		if strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%v", err)
		}
	}
}

// TestCA_SignsNothingThatOutlivesIt.
func TestCA_SignsNothingThatOutlivesIt(t *testing.T) {
	now := time.Now()
	all, _ := authority.Parse(made(t, now.Add(-30*time.Minute)), now)
	key, err := authority.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := all[0].Sign(&x509.Certificate{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"x"}}, key.Public(), now, time.Minute, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(all[0].Cert)
	for at, valid := range map[time.Duration]bool{-2 * time.Minute: false, 0: true, 29 * time.Minute: true, 31 * time.Minute: false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: "x", CurrentTime: now.Add(at), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if (err == nil) != valid {
			t.Errorf("after %s: %v", at, err)
		}
	}
	if !cert.NotAfter.Equal(all[0].Cert.NotAfter) {
		t.Errorf("it is valid until %s, and its CA until %s", cert.NotAfter, all[0].Cert.NotAfter)
	}
}
