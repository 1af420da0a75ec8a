package selection_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

func sealer(t testing.TB, key byte, block uint64) *selection.TokenCodec {
	t.Helper()
	s, err := selection.NewTokenCodec(bytes.Repeat([]byte{key}, 32), aggregate.Block(block).First)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// status returns an error's Status.
func status(t testing.TB, err error) *apierrors.StatusError {
	t.Helper()
	var s *apierrors.StatusError
	if !errors.As(err, &s) {
		t.Fatalf("%v is no Status", err)
	}
	return s
}

var (
	alice   = &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"dev", "ops"}}
	aliceB  = &user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"ops", "dev", "dev"}}
	token   = selection.Token{Revision: aggregate.Block(7).First + 5, After: selection.Token{}.After}
	binding = selection.NewTokenScope(alice, "/fleet", "pods", "", "app=x", "")
)

func TestTokenCodec_TokensAreGoodForTheirCallerAndSelectionOnly(t *testing.T) {
	s := sealer(t, 1, 7)
	want := token
	want.After = aggregate.Position{Member: "a/one", Namespace: "shop", Name: "web-1"}
	sealed := s.Encode(binding, want)
	if got, err := s.Decode(binding, sealed); err != nil || got != want {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := s.Decode(selection.NewTokenScope(aliceB, "/fleet", "pods", "", "app=x", ""), sealed); err != nil || got != want {
		t.Errorf("the order of groups makes a difference: %v", err)
	}
	for name, b := range map[string]selection.TokenScope{
		"other user":      selection.NewTokenScope(&user.DefaultInfo{Name: "bob", UID: "1", Groups: alice.Groups}, "/fleet", "pods", "", "app=x", ""),
		"other uid":       selection.NewTokenScope(&user.DefaultInfo{Name: "alice", UID: "2", Groups: alice.Groups}, "/fleet", "pods", "", "app=x", ""),
		"other groups":    selection.NewTokenScope(&user.DefaultInfo{Name: "alice", UID: "1", Groups: []string{"dev"}}, "/fleet", "pods", "", "app=x", ""),
		"other resource":  selection.NewTokenScope(alice, "/fleet", "secrets", "", "app=x", ""),
		"other namespace": selection.NewTokenScope(alice, "/fleet", "pods", "n", "app=x", ""),
		"other selector":  selection.NewTokenScope(alice, "/fleet", "pods", "", "app=y", ""),
		"moved boundary":  selection.NewTokenScope(alice, "/fleet", "pods", "", "app=", "x"),
		"other target":    selection.NewTokenScope(alice, "/members/a/one", "pods", "", "app=x", ""),
	} {
		if _, err := s.Decode(b, sealed); status(t, err).Status().Code != http.StatusBadRequest {
			t.Errorf("%s: %v, want a 400", name, err)
		}
	}
	if _, err := sealer(t, 2, 7).Decode(binding, sealed); status(t, err).Status().Code != http.StatusBadRequest {
		t.Errorf("a token sealed with another key: %v, want a 400", err)
	}
}

func TestTokenCodec_TokensOfAnotherProcessContinueAtTheNewest(t *testing.T) {
	after := aggregate.Position{Member: "a/one", Namespace: "shop", Name: "web-1"}
	old := sealer(t, 1, 7).Encode(binding, selection.Token{Revision: aggregate.Block(7).First + 5, After: after})
	s := sealer(t, 2, 8)
	_, err := s.Decode(binding, old)
	st := status(t, err).Status()
	if st.Code != http.StatusGone || !apierrors.IsResourceExpired(err) || !strings.Contains(st.Message, "inconsistent list") {
		t.Fatalf("%+v, want 410 Expired", st)
	}
	got, err := s.Decode(binding, st.ListMeta.Continue)
	if err != nil || got != (selection.Token{After: after}) {
		t.Errorf("the token of the 410 is %+v, %v", got, err)
	}
	// Also where that one had lost its file, and reserved the same block.
	within, err := selection.NewTokenCodec(bytes.Repeat([]byte{3}, 32), aggregate.Block(8).First+1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decode(binding, within.Encode(binding, selection.Token{After: after})); !apierrors.IsResourceExpired(err) {
		t.Errorf("of a process of the same block: %v, want 410 Expired", err)
	}
	if _, err := s.Decode(selection.NewTokenScope(alice, "else"), old); status(t, err).Status().Code != http.StatusBadRequest {
		t.Errorf("for another selection: %v, want a 400", err)
	}
}

func TestTokenCodec_DetectsEveryChangedByte(t *testing.T) {
	s := sealer(t, 1, 7)
	raw, err := base64.RawURLEncoding.DecodeString(s.Encode(binding, selection.Token{Revision: 9, After: aggregate.Position{Member: "a/b", Name: "n"}}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		changed := bytes.Clone(raw)
		changed[i] ^= 0x10
		_, err := s.Decode(binding, base64.RawURLEncoding.EncodeToString(changed))
		want := int32(http.StatusBadRequest)
		if 1 <= i && i < 9 { // the process: who changes it gets what the owner of an old token would
			want = http.StatusGone
		}
		if got := status(t, err).Status().Code; got != want {
			t.Errorf("byte %d: %d, want %d", i, got, want)
		}
	}
	for _, junk := range []string{"", "x", "!!", strings.Repeat("A", 5000), base64.RawURLEncoding.EncodeToString(raw[:40])} {
		if _, err := s.Decode(binding, junk); status(t, err).Status().Code != http.StatusBadRequest {
			t.Errorf("%.20q: %v, want a 400", junk, err)
		}
	}
}

func TestTokenCodec_RefusesWeakKeys(t *testing.T) {
	if _, err := selection.NewTokenCodec(make([]byte, 31), 1); err == nil {
		t.Error("31 bytes are taken for a key")
	}
	if _, err := selection.NewTokenCodec(make([]byte, 32), 0); err == nil {
		t.Error("an index that begins at 0 is taken")
	}
}

func FuzzToken(f *testing.F) {
	s := sealer(f, 1, 7)
	for _, t := range []selection.Token{{}, {Revision: 3, After: aggregate.Position{Member: "a/b", Namespace: "n", Name: "x"}}} {
		f.Add(s.Encode(binding, t))
		f.Add(sealer(f, 2, 6).Encode(binding, t))
	}
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := s.Decode(binding, text)
		if err == nil {
			if s.Encode(binding, got) != text {
				t.Errorf("%q is good and was not sealed", text)
			}
			return
		}
		switch st := status(t, err).Status(); st.Code {
		case http.StatusBadRequest:
		case http.StatusGone:
			if again, err := s.Decode(binding, st.ListMeta.Continue); err != nil || again.Revision != 0 {
				t.Errorf("the token of the 410 is %+v, %v", again, err)
			}
		default:
			t.Errorf("%q: %v", text, err)
		}
	})
}
