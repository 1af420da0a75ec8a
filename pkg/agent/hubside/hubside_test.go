package hubside

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzRequest: what the endpoints take from anybody is a key that was proven, or an answer with a reason.
func FuzzRequest(f *testing.F) {
	key, err := identity.NewKey()
	must(f, err)
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"federator.example"}}, key)
	must(f, err)
	text, err := json.Marshal(joining.Request{Token: joining.NewToken([32]byte{}).String(), CSR: csr, Version: "v1"})
	must(f, err)
	f.Add(text)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, joining.JoinPath, bytes.NewReader(body))
		req, key, err := decode(r, true)
		if err != nil {
			if p, is := err.(*problem); !is || p.code != http.StatusBadRequest || p.text == "" { //nolint:errorlint // it is made here
				t.Errorf("%v", err)
			}
			return
		}
		if csr, err := x509.ParseCertificateRequest(req.CSR); err != nil || csr.CheckSignature() != nil || key == nil {
			t.Errorf("a key that was not proven is taken: %v", err)
		}
	})
}

// TestAuthorities_SignForOneMemberOnly: nothing that a request asks for is in a certificate.
func TestAuthorities_SignForOneMemberOnly(t *testing.T) {
	now := time.Now()
	data, err := newAuthority(now)
	must(t, err)
	all, _, err := parseAuthorities(data, now)
	must(t, err)
	of, err := identity.Parse("fleet/edge", "uid")
	must(t, err)
	key, err := identity.NewKey()
	must(t, err)
	c, err := signAgent(all.newest(now), of, key.Public(), now, time.Hour)
	must(t, err)
	if got, err := identity.Of(c); err != nil || got != of {
		t.Errorf("%v %v", got, err)
	}
	pool := identity.Pool(all.certificates())
	verify := func(at time.Time, usage x509.ExtKeyUsage) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	if err := verify(now, x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
	if verify(now, x509.ExtKeyUsageServerAuth) == nil || verify(now.Add(time.Hour+time.Minute), x509.ExtKeyUsageClientAuth) == nil || c.IsCA {
		t.Error("it is a server's, a CA's, or does not expire")
	}
	own, err := serving(all.oldest(now), []string{"federator.example", "192.0.2.1"}, now)
	must(t, err)
	for _, host := range []string{"federator.example", "192.0.2.1"} {
		if _, err := own.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err != nil {
			t.Error(err)
		}
	}
	if _, err := own.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("federator's own is a client's")
	}
}

func TestParseAuthorities(t *testing.T) {
	now := time.Now()
	first, err := newAuthority(now.Add(-time.Hour))
	must(t, err)
	second, err := newAuthority(now)
	must(t, err)
	future, err := newAuthority(now.Add(time.Hour))
	must(t, err)
	both := func(all ...map[string][]byte) map[string][]byte {
		out := map[string][]byte{"comment": []byte("of somebody")}
		for _, m := range all {
			for k, v := range m {
				out[k] = v
			}
		}
		return out
	}
	all, _, err := parseAuthorities(both(second, first, future), now)
	must(t, err)
	digest := func(m map[string][]byte) [32]byte {
		a, _, err := parseAuthorities(m, now.Add(2*time.Hour))
		must(t, err)
		return identity.Digest(a[0].Cert)
	}
	if identity.Digest(all.oldest(now).Cert) != digest(first) || identity.Digest(all.newest(now).Cert) != digest(second) || len(all) != 3 {
		t.Error("the oldest or the newest is another one")
	}
	trusted := both(first, second)
	for name := range first {
		if bytes.HasSuffix([]byte(name), []byte(keySuffix)) {
			delete(trusted, name)
		}
	}
	if all, _, err := parseAuthorities(trusted, now); err != nil || identity.Digest(all.oldest(now).Cert) != digest(second) || len(all) != 2 {
		t.Errorf("one without a key: %v", err)
	}
	swapped := both(first)
	for name := range swapped {
		if bytes.HasSuffix([]byte(name), []byte(keySuffix)) {
			for other, key := range second {
				if bytes.HasSuffix([]byte(other), []byte(keySuffix)) {
					swapped[name] = key
				}
			}
		}
	}
	for name, data := range map[string]map[string][]byte{
		"none": {}, "of the future only": future, "nonsense": {"a.crt": []byte("x")}, "another key": swapped,
		"expired": nil,
	} {
		at := now
		if name == "expired" {
			data, at = first, now.Add(2*authorityLife)
		}
		if all, _, err := parseAuthorities(data, at); err == nil {
			t.Errorf("%s: %d", name, len(all))
		}
	}
}

// TestStatus_IsWrittenSeldom: a change of connected at once, all else once in a while.
func TestStatus_IsWrittenSeldom(t *testing.T) {
	now := time.Now()
	yes, no := true, false
	at := func(ago time.Duration) *v1alpha1.MemberStatus {
		return stampedStatus(now.Add(-ago), now.Add(time.Hour), &yes)
	}
	is := state{connected: true, version: "v1", heard: now, expires: now.Add(time.Hour)}
	for name, tc := range map[string]struct {
		was   v1alpha1.MemberStatus
		is    state
		wrote time.Duration // ago; 0: never
		up    time.Duration
		want  bool
	}{
		"nothing is known yet":          {is: state{}, want: true},
		"it is connected":               {was: v1alpha1.MemberStatus{Connected: &no}, is: is, want: true},
		"it has just been written":      {was: v1alpha1.MemberStatus{Connected: &no}, is: is, wrote: time.Second},
		"all is as it was":              {was: *at(0), is: is},
		"it was heard a while ago":      {was: *at(contactEvery), is: is, want: true},
		"and that was just written":     {was: *at(contactEvery), is: is, wrote: time.Second},
		"another version":               {was: *at(0), is: state{connected: true, version: "v2", expires: is.expires}, want: true},
		"a renewed certificate":         {was: *at(0), is: state{connected: true, expires: is.expires.Add(time.Hour)}, want: true},
		"lost by this process":          {was: *at(0), is: state{}, up: time.Hour, want: true},
		"right after a restart":         {was: *at(0), is: state{}, up: time.Second},
		"connected to another process":  {was: *by("other", at(0)), is: state{}, up: time.Hour},
		"the other process is no more":  {was: *by("other", at(abandoned)), is: state{}, up: time.Hour, want: true},
		"it is known not to be there":   {was: v1alpha1.MemberStatus{Connected: &no}, is: state{}, up: time.Hour},
		"an old certificate, elsewhere": {was: *at(0), is: state{connected: true, expires: is.expires.Add(-time.Hour)}},
	} {
		m := &v1alpha1.Member{Status: tc.was, Spec: v1alpha1.MemberSpec{Agent: &v1alpha1.MemberAgent{}}}
		m.UID = "uid"
		w := &statusWriter{process: "own", started: now.Add(-tc.up), written: map[types.UID]time.Time{}}
		if tc.wrote > 0 {
			w.written[m.UID] = now.Add(-tc.wrote)
		}
		if got := w.due(m, tc.is, now) != keep; got != tc.want {
			t.Errorf("%s: due is %t", name, got)
		}
	}
}

// stampedStatus is of a Member whose agent was heard at a time.
func stampedStatus(heard, expires time.Time, connected *bool) *v1alpha1.MemberStatus {
	return &v1alpha1.MemberStatus{
		Connected: connected, AgentVersion: "v1", Process: "own",
		LastContactTime: &metav1.Time{Time: heard}, CertificateExpires: &metav1.Time{Time: expires},
	}
}

func by(process string, s *v1alpha1.MemberStatus) *v1alpha1.MemberStatus {
	s.Process = process
	return s
}
