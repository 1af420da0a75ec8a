package hostile

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// RawError is in every error that a hostile member makes up: what members say in errors is
// for who may read the member.
const RawError = "rawerror-of-a-member"

// flood is how much a member goes on to send where nobody should read so much, in bytes.
const flood = 96 << 20

// bodyClasses attack with versions, sizes and errors.
var bodyClasses = []Class{
	{"version-missing", 2, func(rng *rand.Rand) *Attack {
		code := one(rng, 404, 403, 401, 500, 503, 204)
		return &Attack{Complete: code == 404, Exact: code == 404, Answer: answer(Version, func(w http.ResponseWriter, _ *http.Request) {
			answerStatus(w, code, "NotFound", RawError)
		})}
	}},
	{"version-huge", 4, func(*rand.Rand) *Attack {
		return &Attack{Answer: answer(Version, func(w http.ResponseWriter, _ *http.Request) {
			endless(w, 200, `{"major":"1","minor":"36","gitVersion":"v1.36.0`)
		})}
	}},
	{"version-garbage", 2, func(rng *rand.Rand) *Attack {
		version := one[any](rng, "", 5, nil, "v1.99999999999999999999", "v0.0.0", "\x1b[31mv1", strings.Repeat("9", 1<<20), map[string]any{}, "v1.36.3'; --")
		return &Attack{Document: func(c *Call, doc map[string]any) {
			if c.Verb == Version {
				doc["gitVersion"], doc["minor"] = version, version
			}
		}}
	}},
	{"discovery-huge", 4, func(rng *rand.Rand) *Attack {
		path := one(rng, "/api", "/apis")
		return &Attack{Answer: answer(Discovery, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				answerStatus(w, 404, "NotFound", RawError)
				return
			}
			w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			endless(w, 200, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"`)
		})}
	}},
	{"errors-huge", 4, func(rng *rand.Rand) *Attack {
		code, verb := one(rng, 500, 403, 400, 503, 410), one(rng, List, WatchList, Watch, Discovery, Version)
		return &Attack{Answer: answer(verb, func(w http.ResponseWriter, _ *http.Request) {
			endless(w, code, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+RawError)
		})}
	}},
	{"errors", 3, func(rng *rand.Rand) *Attack {
		share := rng.Float64()
		return &Attack{Answer: func(w http.ResponseWriter, _ *http.Request, c *Call) bool {
			if !c.Objects() || c.Rand("share", c.Path).Float64() > share {
				return false
			}
			code := one(c.Rand(c.Path), 400, 401, 403, 404, 406, 409, 410, 418, 422, 429, 500, 503, 504)
			if code == 429 {
				w.Header().Set("Retry-After", one(c.Rand("after"), "0", "-1", "100000", "x"))
			}
			answerStatus(w, code, one(c.Rand(c.Path, "reason"), "Forbidden", "Expired", "NotFound", RawError), RawError+" "+strings.Repeat("e", 3000))
			return true
		}}
	}},
	{"redirects", 2, func(rng *rand.Rand) *Attack {
		to, verb := one(rng, "http://169.254.169.254/latest", "https://127.0.0.1:1/", "/", "file:///etc/passwd", "//"), one(rng, List, WatchList, Watch, Discovery, Version)
		return &Attack{Answer: answer(verb, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		})}
	}},
	{"not-json", 2, func(rng *rand.Rand) *Attack {
		body, kind := one(rng, "", "null", "[]", "{", "\x00\xff", `{"kind":"Status"}`, "k8s\x00\xff\xff\xff", "<html>"), one(rng, "application/json", "application/vnd.kubernetes.protobuf", "text/html", "")
		verb := one(rng, List, WatchList, Watch, Discovery, Version)
		return &Attack{Answer: answer(verb, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		})}
	}},
	{"hang", 3, func(rng *rand.Rand) *Attack {
		verb := one(rng, List, WatchList, Watch, Discovery, Version)
		return &Attack{Answer: answer(verb, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		})}
	}},
	{"slow-bytes", 2, func(rng *rand.Rand) *Attack {
		size, pause := 1+rng.IntN(200), time.Duration(1+rng.IntN(20))*time.Millisecond
		return &Attack{Bytes: true, Exact: true, Wire: func(_ *Call, w io.Writer) io.Writer { return &slow{w, size, pause} }}
	}},
	{"cut", 3, func(rng *rand.Rand) *Attack {
		after := 1 << rng.IntN(16)
		return &Attack{Bytes: true, Wire: func(c *Call, w io.Writer) io.Writer {
			if !c.Objects() {
				return w
			}
			return &cut{w, after}
		}}
	}},
	{"bits", 3, func(rng *rand.Rand) *Attack {
		every := 50 + rng.IntN(5000)
		return &Attack{Bytes: true, Wire: func(c *Call, w io.Writer) io.Writer {
			return &bits{w, c.Rand(c.Path), every}
		}}
	}},
}

// answer answers one verb by a function.
func answer(v Verb, f func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request, *Call) bool {
	return func(w http.ResponseWriter, r *http.Request, c *Call) bool {
		if c.Verb != v {
			return false
		}
		f(w, r)
		return true
	}
}

// endless writes a body that goes on and on, until the client has had enough.
func endless(w http.ResponseWriter, code int, head string) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	chunk := bytes.Repeat([]byte("x"), 256<<10)
	_, err := io.WriteString(w, head)
	for sent := 0; err == nil && sent < flood; sent += len(chunk) {
		_, err = w.Write(chunk)
	}
	panic(http.ErrAbortHandler) // it never comes to an end
}

// slow writes a few bytes at a time.
type slow struct {
	io.Writer
	size  int
	pause time.Duration
}

func (s *slow) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := s.Writer.Write(b[n:min(len(b), n+s.size)])
		n += m
		if err != nil {
			return n, err
		}
		if n < 1000*s.size { // not for ever
			time.Sleep(s.pause)
		}
	}
	return n, nil
}

// cut breaks off in the middle.
type cut struct {
	io.Writer
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b[:min(len(b), c.left)])
	if c.left -= n; c.left <= 0 {
		panic(http.ErrAbortHandler)
	}
	if err == nil && n < len(b) {
		err = fmt.Errorf("cut after %d bytes", n)
	}
	return n, err
}

// bits turns bits over.
type bits struct {
	io.Writer
	rng   *rand.Rand
	every int
}

func (x *bits) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	for i := x.rng.IntN(x.every); i < len(b); i += 1 + x.rng.IntN(x.every) {
		b[i] ^= 1 << x.rng.IntN(8)
	}
	return x.Writer.Write(b)
}
