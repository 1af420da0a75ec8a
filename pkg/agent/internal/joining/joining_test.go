package joining_test

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"federator.dev/federator/pkg/agent/internal/joining"
)

func TestToken_IsWhatItsTextSays(t *testing.T) {
	digest := [32]byte{1, 2, 3}
	a, b := joining.NewToken(digest), joining.NewToken(digest)
	if a.ID() == b.ID() || a.Hash() == b.Hash() {
		t.Error("two tokens are the same")
	}
	got, err := joining.ParseToken(" " + a.String() + "\n")
	if err != nil || got != a || got.Authority != digest {
		t.Errorf("%v %v", got, err)
	}
	if !got.Matches(a.Hash()) || got.Matches(b.Hash()) || got.Matches("") {
		t.Error("it matches another hash, or not its own")
	}
	if strings.Contains(a.String(), a.Hash()) || strings.Contains(a.Hash(), a.ID()) {
		t.Error("the hash says something of the token")
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(joining.NewToken([32]byte{9}).String())
	f.Add("federator-join-v1.")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := joining.ParseToken(text)
		if err != nil {
			if _, same := joining.ParseToken(""); err.Error() != same.Error() {
				t.Errorf("the error depends on the text, which may be secret: %v", err)
			}
			return
		}
		if token.String() != strings.TrimSpace(text) {
			t.Errorf("%q and %q are one token", text, token.String())
		}
	})
}

func TestDecode_IsBounded(t *testing.T) {
	for text, want := range map[string]bool{
		`{"token":"a"}`:                true,
		`{"token":"a"} `:               true,
		`{"token":"a"}{}`:              false,
		`{"token":"a","more":1}`:       true, // of a version that is newer
		`{"token":1}`:                  false,
		``:                             false,
		strings.Repeat(" ", 64<<10):    false,
		`"` + strings.Repeat("a", 1e6): false,
	} {
		var req joining.Request
		if err := joining.Decode(strings.NewReader(text), &req); (err == nil) != want {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func TestCleanVersion(t *testing.T) {
	for in, want := range map[string]string{"v1.2.3": "v1.2.3", "a\x1b[31mb\né": "a[31mb", strings.Repeat("x", 100): strings.Repeat("x", joining.MaxVersion)} {
		if got := joining.CleanVersion(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestWriteError_IsAStatus(t *testing.T) {
	w := httptest.NewRecorder()
	joining.WriteError(w, 403, "Forbidden", "no %s", "way")
	if w.Code != 403 || !bytes.Contains(w.Body.Bytes(), []byte(`"message":"no way","reason":"Forbidden","code":403`)) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
