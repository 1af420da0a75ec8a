package message

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip_BoundsAndCleans(t *testing.T) {
	if got := Clip("a\x1b[31m\nb\x7f"); got != "a [31m b " {
		t.Errorf("%q", got)
	}
	long := Clip(strings.Repeat("é\xff", MaxBytes))
	if n := len(long); n > MaxBytes || n < MaxBytes-utf8.UTFMax || !utf8.ValidString(long) || !strings.HasSuffix(long, "…") {
		t.Errorf("%d bytes, valid %t", n, utf8.ValidString(long))
	}
}

func TestClip_TakesCredentialsOut(t *testing.T) {
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
	for in, want := range map[string]string{
		"Authorization: Bearer opaque-1":                         "Authorization: …",
		`{"headers":{"Authorization":["Bearer ` + jwt + `"]}}`:   `{"headers":{"Authorization":["…"]}}`,
		`no upstream (\"authorization\": \"Basic YTpi\") for it`: `no upstream (\"authorization\": \"…\") for it`,
		"sent Bearer sha256~0123456789abcdef, refused":           "sent Bearer …, refused",
		"token " + jwt + " has expired":                          "token … has expired",
		"token " + jwt[:30]:                                      "token …",
		"proxyconnect https://ann:secret@proxy.example:3128/a":   "proxyconnect https://…@proxy.example:3128/a",
		// These are none.
		"the bearer token is expired":                              "the bearer token is expired",
		"basic authentication is off":                              "basic authentication is off",
		`Get "https://10.0.0.1:6443/api/v1/pods?a=b@c": EOF`:       `Get "https://10.0.0.1:6443/api/v1/pods?a=b@c": EOF`,
		"cannot list clusters in group authorization.example":      "cannot list clusters in group authorization.example",
		"Role.rbac.authorization.k8s.io: GET /apis/rbac: no route": "Role.rbac.authorization.k8s.io: GET /apis/rbac: no route",
		"authorization: permission denied":                         "authorization: permission denied",
		"authorization failed":                                     "authorization failed",
	} {
		if got := Clip(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got := Clip(strings.Repeat("x", MaxBytes-20) + " Authorization: Bearer opaque-1"); strings.Contains(got, "opaque") {
		t.Errorf("at the end: %q", got)
	}
	if got := Clip(strings.Repeat("eyJ.", 1<<20)); len(got) > MaxBytes {
		t.Errorf("%d bytes", len(got))
	}
}

// BenchmarkClip is of what a member out of reach has noted of it with each try.
func BenchmarkClip(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Clip(`Get "https://10.0.0.1:6443/version": dial tcp 10.0.0.1:6443: connect: connection refused`)
	}
}
