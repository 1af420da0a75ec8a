package hubside

import (
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// made returns the data of a Secret with CAs that are valid from some times on.
func made(t *testing.T, from ...time.Time) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, at := range from {
		data, err := newAuthority(at)
		must(t, err)
		maps.Copy(out, data)
	}
	return out
}

func parsed(t *testing.T, data map[string][]byte, now time.Time) authorities {
	t.Helper()
	all, skipped, err := parseAuthorities(data, now)
	must(t, err)
	if len(skipped) > 0 {
		t.Error(skipped)
	}
	return all
}

// TestAuthorities_OneThatExpiresIsNotUsed, although it was valid when the Secret was read.
func TestAuthorities_OneThatExpiresIsNotUsed(t *testing.T) {
	now := time.Now()
	all := parsed(t, made(t, now.Add(2*time.Hour-authorityLife), now), now)
	oldest, newest := identity.Digest(all[0].Cert), identity.Digest(all[1].Cert)
	for after, want := range map[time.Duration][32]byte{0: oldest, 90 * time.Minute: newest, 3 * time.Hour: newest} {
		later := now.Add(after)
		by := all.oldest(later)
		if identity.Digest(by.Cert) != want {
			t.Errorf("after %s federator's own certificate is of another CA", after)
		}
		cert, err := serving(by, []string{"federator.example"}, later)
		must(t, err)
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "federator.example", Roots: identity.Pool(all.certificates()), CurrentTime: later}); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	if _, err := signAgent(all.newest(now.Add(2*authorityLife)), identity.Identity{}, nil, now, time.Hour); err == nil {
		t.Error("none is valid, and one signs")
	}
}

// TestParseAuthorities_OneBadEntryIsLeftOut, and all others are used.
func TestParseAuthorities_OneBadEntryIsLeftOut(t *testing.T) {
	now := time.Now()
	data := made(t, now.Add(-time.Hour), now.Add(-time.Minute))
	data["bad.crt"], data["bad.key"] = []byte("x"), []byte("x")
	broken := slices.Max(slices.Collect(func(yield func(string) bool) {
		for name := range data {
			if strings.HasSuffix(name, keySuffix) && name != "bad.key" && !yield(name) {
				return
			}
		}
	}))
	data[broken] = []byte("x")
	all, skipped, err := parseAuthorities(data, now)
	if err != nil || len(all) != 2 || len(skipped) != 2 || all[0].Key == nil || all[1].Key != nil {
		t.Errorf("%d CAs, skipped %v: %v", len(all), skipped, err)
	}
	var many []time.Time
	for i := range maxAuthorities + 2 {
		many = append(many, now.Add(time.Duration(i-20)*time.Minute))
	}
	data = made(t, many...)
	all, skipped, err = parseAuthorities(data, now)
	if err != nil || len(all) != maxAuthorities || len(skipped) != 2 || !all[0].Cert.NotBefore.Equal(many[0].UTC().Truncate(time.Second)) {
		t.Errorf("%d CAs, skipped %v: %v", len(all), skipped, err)
	}
}

// rotated rotates the CAs of a Secret.
func rotated(t *testing.T, client kubernetes.Interface, dropOld bool) (authorities, error) {
	t.Helper()
	err := RotateAuthority(t.Context(), client, "fed", dropOld)
	s, failed := client.CoreV1().Secrets("fed").Get(t.Context(), AuthoritySecret, metav1.GetOptions{})
	must(t, failed)
	return parsed(t, s.Data, time.Now()), err
}

// TestRotateAuthority_WritesWhatIsUsable: no ninth, nothing when there is nothing to drop, and never an older one.
func TestRotateAuthority_WritesWhatIsUsable(t *testing.T) {
	now := time.Now()
	// By a clock that is ahead of this one, as of the process that has made the first.
	data := made(t, now.Add(-time.Second))
	data["comment"] = []byte("x")
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: AuthoritySecret, Namespace: "fed"}, Data: data})
	first := parsed(t, data, now)
	if all, err := rotated(t, client, true); err == nil || !strings.Contains(err.Error(), "rotate-ca") || len(all) != 1 {
		t.Errorf("%d CAs, and dropping the only one: %v", len(all), err)
	}
	for n := 2; n <= maxAuthorities; n++ {
		all, err := rotated(t, client, false)
		if err != nil || len(all) != n || identity.Digest(all[0].Cert) != identity.Digest(first[0].Cert) {
			t.Fatalf("%d CAs, or the oldest is another one: %v", len(all), err)
		}
	}
	if all, err := rotated(t, client, false); err == nil || !strings.Contains(err.Error(), "--drop-old") || len(all) != maxAuthorities {
		t.Errorf("%d CAs: %v", len(all), err)
	}
	s, err := client.CoreV1().Secrets("fed").Get(t.Context(), AuthoritySecret, metav1.GetOptions{})
	must(t, err)
	all := parsed(t, s.Data, now.Add(time.Minute))
	out, err := withNewest(s.Data, now.Add(time.Minute))
	must(t, err)
	if left := parsed(t, out, now.Add(time.Minute)); len(left) != 1 || identity.Digest(left[0].Cert) != identity.Digest(all[maxAuthorities-1].Cert) || out["comment"] == nil {
		t.Errorf("%d CAs are left", len(left))
	}
	if _, err := withNewest(s.Data, now.Add(-time.Second)); err == nil {
		t.Error("one is left that is not valid yet")
	}
}

// TestCreateToken_NamesTheCAThatServes, which is not the oldest where that has no key.
func TestCreateToken_NamesTheCAThatServes(t *testing.T) {
	now := time.Now()
	all := parsed(t, made(t, now.Add(-3*time.Hour), now.Add(-2*time.Hour), now.Add(-time.Hour)), now)
	all[0].Key = nil
	client := fake.NewClientset(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: PublicSecret, Namespace: "fed"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: TokenSecret, Namespace: "fed"}})
	must(t, all.publish(t.Context(), client, "fed", now))
	text, err := CreateToken(t.Context(), client, "fed", "edge/a", "uid", time.Hour)
	must(t, err)
	token, err := joining.ParseToken(text)
	must(t, err)
	if token.Authority != identity.Digest(all[1].Cert) {
		t.Error("the token names another CA")
	}
	must(t, client.CoreV1().Secrets("fed").Delete(t.Context(), TokenSecret, metav1.DeleteOptions{}))
	if _, err := CreateToken(t.Context(), client, "fed", "edge/a", "uid", time.Hour); err == nil || !strings.Contains(err.Error(), TokenSecret) {
		t.Errorf("without the Secret of tokens: %v", err)
	}
}

// TestServer_MakesItsCertificateAnew before it expires, but not for each handshake.
func TestServer_MakesItsCertificateAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := parsed(t, made(t, time.Now().Add(20*time.Hour-authorityLife)), time.Now())
		s := &Server{o: Options{Hosts: []string{"federator.example"}}}
		s.authorities.Store(&all)
		made := map[*x509.Certificate]bool{}
		for range 19 * 60 {
			c, _, err := s.certificate()
			must(t, err)
			if !time.Now().Before(c.Leaf.NotAfter) {
				t.Fatal("it has expired")
			}
			made[c.Leaf] = true
			time.Sleep(time.Minute)
		}
		if len(made) < 2 || len(made) > 8 {
			t.Errorf("%d were made", len(made))
		}
	})
}
