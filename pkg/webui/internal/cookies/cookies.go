// Package cookies keeps values in a browser: encrypted, and in several cookies where one is too small.
package cookies

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Browsers keep cookies of at least 4 KiB, name and attributes included; a token can be larger,
// and is in several then.
const (
	maxChunk  = 3800
	maxChunks = 5
)

// ErrTooLarge is the error of a value for which cookies have no room.
var ErrTooLarge = fmt.Errorf("it is too large for cookies: %d bytes are possible", maxChunk*maxChunks*3/4)

// ErrIncomplete is the error of cookies that do not make a value.
var ErrIncomplete = errors.New("the cookies are incomplete")

// chunkName returns the name of a chunk's cookie.
func chunkName(name string, chunk int) string {
	if chunk == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(chunk)
}

// join returns the value of cookies that splitChunks made; "" without any. The first has the number of
// them, so that one that was left over from a longer value is none of it.
func join(get func(name string) (string, bool), name string) (string, error) {
	first, ok := get(name)
	if !ok || first == "" {
		return "", nil
	}
	digits, value, ok := strings.Cut(first, ".")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > maxChunks || len(value) > maxChunk {
		return "", ErrIncomplete
	}
	var b strings.Builder
	b.WriteString(value)
	for i := 1; i < n; i++ {
		more, ok := get(chunkName(name, i))
		if !ok || more == "" || len(more) > maxChunk {
			return "", ErrIncomplete
		}
		b.WriteString(more)
	}
	return b.String(), nil
}

// splitChunks splits a value into those of cookies.
func splitChunks(value string) ([]string, error) {
	n := (len(value) + maxChunk - 1) / maxChunk
	if n > maxChunks {
		return nil, ErrTooLarge
	}
	out := make([]string, 0, n)
	for i := range n {
		out = append(out, value[i*maxChunk:min((i+1)*maxChunk, len(value))])
	}
	if n > 0 {
		out[0] = strconv.Itoa(n) + "." + out[0]
	}
	return out, nil
}

// Read returns the value that Set has set in a browser; "" where there is none.
func Read(r *http.Request, name string) (string, error) { return join(valueOf(r), name) }

// ReadOne returns the value of a request's cookie that is in one piece. Of two with the name none counts.
func ReadOne(r *http.Request, name string) (string, bool) { return valueOf(r)(name) }

// valueOf returns the value of a request's cookie. Of two with a name none counts.
func valueOf(r *http.Request) func(string) (string, bool) {
	return func(name string) (string, bool) {
		named := r.CookiesNamed(name)
		if len(named) != 1 {
			return "", false
		}
		return named[0].Value, true
	}
}

// Set sets a value, in chunks, and clears what a longer one before has left over. Without expires it
// is gone when the browser is closed.
func Set(w http.ResponseWriter, r *http.Request, name, value string, expires time.Time, now time.Time) error {
	chunks, err := splitChunks(value)
	if err != nil {
		return err
	}
	for i := range maxChunks {
		switch c := New(chunkName(name, i)); {
		case i < len(chunks):
			c.Value = chunks[i]
			if !expires.IsZero() {
				c.MaxAge = max(1, int(expires.Sub(now)/time.Second))
			}
			http.SetCookie(w, c)
		default:
			ClearOne(w, r, c)
		}
	}
	return nil
}

// Clear has the browser forget a value, as far as it has it.
func Clear(w http.ResponseWriter, r *http.Request, name string) {
	for i := range maxChunks {
		ClearOne(w, r, New(chunkName(name, i)))
	}
}

// ClearOne has the browser forget a cookie, as far as it has it.
func ClearOne(w http.ResponseWriter, r *http.Request, c *http.Cookie) {
	if len(r.CookiesNamed(c.Name)) == 0 {
		return
	}
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// New returns a cookie without a value, for all paths of this host and no other, over TLS, that no script reads and
// no other site has sent.
func New(name string) *http.Cookie {
	return &http.Cookie{Name: name, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}
