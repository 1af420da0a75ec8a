package federation_test

import (
	"testing"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
)

func FuzzStatus(f *testing.F) {
	for _, s := range []string{"Synced", "Stale; \"the member is away\"", "Partial; \"only namespaces a\\u00e4\"", "Forbidden; x", "; \"", "Synced; \"\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := federation.ParseStatus(text)
		if err != nil {
			if s != (aggregate.Status{}) {
				t.Errorf("%q: %+v with an error: it must be Unknown", text, s)
			}
			return
		}
		again, err := federation.ParseStatus(federation.FormatStatus(s))
		if err != nil || again.State != s.State {
			t.Errorf("%q: %+v, then %+v: %v", text, s, again, err)
		}
		for _, c := range []byte(federation.FormatStatus(s)) {
			if c < ' ' || c > '~' {
				t.Errorf("%q is not fit for a header", federation.FormatStatus(s))
			}
		}
	})
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{"": false, "a b": false, "8d5e-1": true, "a,b": false, "ä": false, string(make([]byte, 200)): false} {
		if federation.ValidID(id) != want {
			t.Errorf("ValidID(%q) is not %t", id, want)
		}
	}
}
