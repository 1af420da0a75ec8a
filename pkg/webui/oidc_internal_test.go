package webui

import (
	"strings"
	"testing"
	"time"
)

func TestReturnPath_IsOfTheUI(t *testing.T) {
	for _, good := range []string{"/ui", "/ui/", "/ui/violations?policy=a&member=b%2Fc#x", "/ui/policies/a"} {
		if got, err := returnPath(good); err != nil || got != good {
			t.Errorf("%q: %q, %v", good, got, err)
		}
	}
	if got, err := returnPath(""); err != nil || got != "/ui/" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{
		"https://evil.example/ui/", "//evil.example/ui/", "/\\evil.example", "/ui/../query/v1", "/ui/%2e%2e/x", "/uix", "/", "ui/", "/ui//evil.example", "javascript:alert(1)",
		"/ui/\r\nSet-Cookie: a=b", "/ui/\"><script>", "https:/ui/", "/ui/%zz", "/ui/" + strings.Repeat("a", maxReturn), "\t//evil.example", "/ui/ä",
	} {
		if got, err := returnPath(bad); err == nil {
			t.Errorf("%q is taken: %q", bad, got)
		}
	}
}

func TestExpiryOf_AnyToken(t *testing.T) {
	for token, want := range map[string]int64{
		"": 0, "opaque": 0, "a.b.c": 0, "a.e30.c": 0, "a.eyJleHAiOjE3fQ.c": 17, "a.eyJleHAiOi0xfQ.c": 0, "a.eyJleHAiOjFlMzAwfQ.c": 0, "a.eyJleHAiOiJ4In0.c": 0,
	} {
		if got := expiryOf(token); got.IsZero() != (want == 0) || want != 0 && got != time.Unix(want, 0) {
			t.Errorf("%q: %v", token, got)
		}
	}
}
