package cookies

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// request is one with the cookies of a jar.
func request(jar map[string]string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "https://a/", nil)
	for name, value := range jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	return r
}

// take puts the cookies of an answer into a jar.
func take(jar map[string]string, w *httptest.ResponseRecorder) {
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(jar, c.Name)
		} else {
			jar[c.Name] = c.Value
		}
	}
}

// session is a value, and its cookie; a token may have maxToken bytes.
type session struct {
	Token   string
	Expires int64
}

const (
	sessionCookie = "__Host-federator-session"
	maxToken      = 12 << 10
)

func TestCookies_AnyTokenFits(t *testing.T) {
	s, err := NewSealer(NewKey(), "session")
	if err != nil {
		t.Fatal(err)
	}
	jar := map[string]string{}
	for _, size := range []int{1, 2_000, 10_240, maxToken, 5_000, 10, 13_000, 0} {
		sealed, err := s.Seal(session{Token: strings.Repeat("x", size)})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if err := Set(w, request(jar), sessionCookie, sealed, time.Time{}, time.Now()); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		take(jar, w)
		if want := (len(sealed) + maxChunk - 1) / maxChunk; len(jar) != want {
			t.Errorf("%d bytes: %d cookies, want %d", size, len(jar), want)
		}
		total := 0
		for name, value := range jar {
			if total += len(name) + len(value); len(name)+len(value) > 4000 {
				t.Errorf("%d bytes: %s has %d", size, name, len(value))
			}
		}
		if total > 32<<10 {
			t.Errorf("%d bytes make %d of cookies", size, total)
		}
		text, err := Read(request(jar), sessionCookie)
		var got session
		if err != nil || s.Open(text, &got) != nil || len(got.Token) != size {
			t.Errorf("%d bytes: %d, %v", size, len(got.Token), err)
		}
	}
	w := httptest.NewRecorder()
	if err := Set(w, request(jar), sessionCookie, strings.Repeat("x", maxChunk*maxChunks+1), time.Time{}, time.Now()); !errors.Is(err, ErrTooLarge) || len(w.Result().Cookies()) > 0 {
		t.Errorf("too large: %v", err)
	}
	w = httptest.NewRecorder()
	Clear(w, request(jar), sessionCookie)
	if take(jar, w); len(jar) > 0 {
		t.Errorf("left: %v", jar)
	}
}

func TestCookies_ChunksThatAreMissingOrLeftOver(t *testing.T) {
	value := strings.Repeat("x", 2*maxChunk+1)
	chunks, err := splitChunks(value)
	if err != nil || len(chunks) != 3 {
		t.Fatalf("%d chunks, %v", len(chunks), err)
	}
	all := map[string]string{}
	for i, c := range chunks {
		all[chunkName(sessionCookie, i)] = c
	}
	all[chunkName(sessionCookie, 3)] = "left over"
	if got, err := Read(request(all), sessionCookie); err != nil || got != value {
		t.Errorf("with one left over: %d bytes, %v", len(got), err)
	}
	delete(all, chunkName(sessionCookie, 1))
	if got, err := Read(request(all), sessionCookie); !errors.Is(err, ErrIncomplete) {
		t.Errorf("without one: %d bytes, %v", len(got), err)
	}
}

func TestSealer_PurposesDoNotMix(t *testing.T) {
	key := NewKey()
	one, err := NewSealer(key, "session")
	if err != nil {
		t.Fatal(err)
	}
	two, err := NewSealer(key, "refresh")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := one.Seal(session{Token: "t"})
	var got session
	if err != nil || !errors.Is(two.Open(sealed, &got), errSeal) || one.Open(sealed, &got) != nil || got.Token != "t" {
		t.Errorf("%v %+v", err, got)
	}
	if again, _ := one.Seal(session{Token: "t"}); again == sealed {
		t.Error("sealed twice alike")
	}
	if _, err := NewSealer([]byte("short"), "session"); err == nil {
		t.Error("a short key is taken")
	}
}

// FuzzRead: whatever a client sends as cookies, it makes no session, and what was sealed comes back.
func FuzzRead(f *testing.F) {
	s, err := NewSealer(NewKey(), "session")
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := s.Seal(session{Token: strings.Repeat("t", 6000), Expires: 1 << 40})
	if err != nil {
		f.Fatal(err)
	}
	chunks, err := splitChunks(sealed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(chunks[0], chunks[1], "t")
	f.Add("1."+sealed[:30], "", "")
	f.Add("5.a", "b", "\x00")
	f.Fuzz(func(t *testing.T, first, second, token string) {
		jar := map[string]string{sessionCookie: first, chunkName(sessionCookie, 1): second}
		text, err := join(func(name string) (string, bool) { v, ok := jar[name]; return v, ok }, sessionCookie)
		var got session
		if err == nil && s.Open(text, &got) == nil && text != sealed {
			t.Errorf("%q is a session", text)
		}
		if token = strings.ToValidUTF8(token, ""); len(token) > maxToken/2 {
			return
		}
		mine, err := s.Seal(session{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		parts, err := splitChunks(mine)
		if err != nil {
			t.Fatal(err)
		}
		text, err = join(func(name string) (string, bool) {
			for i, p := range parts {
				if chunkName(sessionCookie, i) == name {
					return p, true
				}
			}
			return second, true
		}, sessionCookie)
		if err != nil || s.Open(text, &got) != nil || got.Token != token {
			t.Errorf("%q comes back as %q, %v", token, got.Token, err)
		}
	})
}
