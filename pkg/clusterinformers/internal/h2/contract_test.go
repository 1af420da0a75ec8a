package h2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

func TestTransport_AnswersRequests(t *testing.T) {
	s, _ := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Seen", fmt.Sprint(r.Method, r.URL.RequestURI(), r.Host, r.Header["X-Many"], r.ContentLength, len(body), r.UserAgent()))
		if status, err := strconv.Atoi(r.URL.Query().Get("status")); err == nil {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}
		if r.Method == http.MethodPost {
			_, _ = w.Write(body)
		}
	}, nil)
	host := strings.TrimPrefix(s.URL, "https://")
	none := func() io.Reader { return nil }
	hello := func() io.Reader { return strings.NewReader("hello") }
	parts := func() io.Reader { return io.MultiReader(strings.NewReader("a"), strings.NewReader("b")) }
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, tc := range []struct {
		method, path string
		body         func() io.Reader
		status       int
		seen, answer string
		length       int64
	}{
		{"GET", "/a%2Fb?x=1&y=%20", none, 200, "GET/a%2Fb?x=1&y=%20" + host + "[1 2] 0 0", "", 0},
		{"HEAD", "/", none, 200, "HEAD/" + host + "[1 2] 0 0", "", -1},
		{"POST", "/", hello, 200, "POST/" + host + "[1 2] 5 5", "hello", 5},
		{"POST", "/", none, 200, "POST/" + host + "[1 2] 0 0", "", 0},
		{"POST", "/", parts, 200, "POST/" + host + "[1 2] -1 2", "ab", 2},
		{"POST", "/", func() io.Reader { return bytes.NewReader(large) }, 200, fmt.Sprint("POST/", host, "[1 2] ", len(large), " ", len(large)), string(large), -1},
		{"DELETE", "/?status=404", none, 404, "DELETE/?status=404" + host + "[1 2] 0 0", "", 0},
		{"GET", "/?status=302", none, 302, "GET/?status=302" + host + "[1 2] 0 0", "", 0},
		{"GET", "/?status=304", none, 304, "GET/?status=304" + host + "[1 2] 0 0", "", -1},
		{"GET", "/?status=204", none, 204, "GET/?status=204" + host + "[1 2] 0 0", "", 0},
	} {
		both(t, func(t *testing.T, c *client) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, s.URL+tc.path, tc.body())
			if err != nil {
				t.Fatal(err)
			}
			req.Header["X-Many"] = []string{"1", "2"}
			req.Header.Set("User-Agent", "ua")
			resp, err := c.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err != nil || string(answer) != tc.answer || resp.StatusCode != tc.status {
				t.Errorf("%s %s: status %d, %d bytes, %v", tc.method, tc.path, resp.StatusCode, len(answer), err)
			}
			if got := resp.Header.Get("X-Seen"); got != tc.seen+"ua" {
				t.Errorf("the server saw %q, want %q", got, tc.seen)
			}
			if resp.Proto != "HTTP/2.0" || resp.TLS == nil || resp.Request != req {
				t.Errorf("response is %s, TLS %v", resp.Proto, resp.TLS)
			}
			if tc.length >= 0 && resp.ContentLength != tc.length {
				t.Errorf("%s %s: length is %d, want %d", tc.method, tc.path, resp.ContentLength, tc.length)
			}
		})
	}
}

// events writes what it is told to, by path.
type events struct{ of sync.Map }

func (e *events) at(path string) chan string {
	ch, _ := e.of.LoadOrStore(path, make(chan string, 100))
	return ch.(chan string)
}

func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case s, ok := <-e.at(r.URL.Path):
			if !ok {
				return
			}
			if s == "abort" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, s)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			e.at(r.URL.Path + "/done") <- "gone"
			return
		}
	}
}

// follow reads a stream as a driver does. Its ready calls come over a channel.
func follow(s stream.Stream) (ready chan struct{}) {
	ready = make(chan struct{}, 100)
	s.Notify(func() { ready <- struct{}{} })
	return ready
}

// readNow reads all that there is.
func readNow(s stream.Stream) (string, error) {
	var out []byte
	for {
		b := make([]byte, 7)
		n, err := s.ReadNow(b)
		out = append(out, b[:n]...)
		if err != nil {
			return string(out), err
		}
	}
}

func TestStream_SaysWhenThereIsSomethingToRead(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		e := &events{}
		server, _ := newServer(t, e.ServeHTTP, nil)
		s := c.watch(t, t.Context(), server.URL+"/a")
		if got, err := readNow(s); got != "" || !errors.Is(err, stream.ErrNothing) {
			t.Errorf("at first there is %q, %v", got, err)
		}
		ready := follow(s)
		for i := range 20 {
			want := strings.Repeat(strconv.Itoa(i), i*i*50+1)
			e.at("/a") <- want
			got := ""
			for len(got) < len(want) {
				<-ready
				some, err := readNow(s)
				if !errors.Is(err, stream.ErrNothing) {
					t.Fatal(err)
				}
				got += some
			}
			if got != want {
				t.Fatalf("event %d is %d bytes, want %d", i, len(got), len(want))
			}
		}
		close(e.at("/a"))
		<-ready
		if got, err := readNow(s); got != "" || !errors.Is(err, io.EOF) {
			t.Errorf("at the end there is %q, %v", got, err)
		}
	})
}

func TestStream_EndsWithItsContextAndWithClose(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		e := &events{}
		server, _ := newServer(t, e.ServeHTTP, nil)
		ctx, cancel := context.WithCancel(t.Context())
		s := c.watch(t, ctx, server.URL+"/a")
		ready := follow(s)
		cancel()
		<-ready
		if _, err := s.ReadNow(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("after the context: %v", err)
		}
		<-e.at("/a/done")
		s = c.watch(t, t.Context(), server.URL+"/b")
		ready = follow(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.ReadNow(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("after Close: %v", err)
		}
		<-e.at("/b/done")
		if len(ready) > 0 {
			t.Error("called after Close")
		}
	})
}

func TestStream_BrokenByTheServerIsAnError(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		e := &events{}
		server, _ := newServer(t, e.ServeHTTP, nil)
		s := c.watch(t, t.Context(), server.URL+"/a")
		e.at("/a") <- "before"
		b := make([]byte, 100)
		if n, err := s.Read(b); err != nil || string(b[:n]) != "before" {
			t.Fatal(string(b[:n]), err)
		}
		e.at("/a") <- "abort"
		if _, err := s.Read(b); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream that was reset ends with %v", err)
		}
		s = c.watch(t, t.Context(), server.URL+"/b")
		ready := follow(s)
		server.CloseClientConnections()
		<-ready
		if _, err := s.ReadNow(b); err == nil || errors.Is(err, io.EOF) || errors.Is(err, stream.ErrNothing) {
			t.Errorf("a connection that broke ends a stream with %v", err)
		}
	})
}

func TestTransport_OpensAsManyStreamsAsAreAskedFor(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		e := &events{}
		server, open := newServer(t, e.ServeHTTP, nil)
		const n = 250
		var wg sync.WaitGroup
		streams := make([]stream.Stream, n)
		asking := make(chan struct{}, 20) // net/http dials for each: servers close connections whose settings are late
		for i := range n {
			asking <- struct{}{}
			wg.Go(func() {
				defer func() { <-asking }()
				resp, err := c.do(t.Context(), http.MethodGet, fmt.Sprintf("%s/%d?watch=true", server.URL, i), nil)
				if err != nil {
					t.Error(err)
					return
				}
				streams[i] = resp.Body.(stream.Stream)
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if n := open.Load(); n < 3 {
			t.Errorf("%d connections", n)
		}
		for i, s := range streams {
			e.at("/" + strconv.Itoa(i)) <- strconv.Itoa(i)
			b := make([]byte, 10)
			if n, err := s.Read(b); err != nil || string(b[:n]) != strconv.Itoa(i) {
				t.Errorf("stream %d: %q, %v", i, b[:n], err)
			}
			s.Close()
		}
	})
}

func TestTransport_GivesUpWithItsContext(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		asked := make(chan struct{}, 10)
		server, _ := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			<-r.Context().Done()
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		if _, _, err := c.get(ctx, server.URL); !errors.Is(err, context.Canceled) {
			t.Errorf("while it waits for headers: %v", err)
		}
		if _, _, err := c.get(ctx, server.URL); !errors.Is(err, context.Canceled) {
			t.Errorf("before it begins: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := c.get(ctx, server.URL); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("past its deadline: %v", err)
		}
	})
}

func TestTransport_ReturnsEarlyAnswersToRequestsWithBodies(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		server, _ := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge) // without reading the body
		}, nil)
		for range 3 {
			resp, err := c.do(t.Context(), http.MethodPost, server.URL, bytes.NewReader(make([]byte, 20<<20)))
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Error(resp.Status)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			resp.Body.Close()
		}
	})
}

func TestTransport_ReadsLargeResponsesWhole(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		server, _ := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 1000 {
				_, _ = w.Write(bytes.Repeat([]byte{byte(i)}, i))
			}
		}, nil)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, data, err := c.get(t.Context(), server.URL)
				if err != nil {
					t.Error(err)
				}
				for i := range 1000 {
					if !bytes.Equal(data[:i], bytes.Repeat([]byte{byte(i)}, i)) {
						t.Errorf("part %d differs", i)
						return
					}
					data = data[i:]
				}
				if len(data) > 0 {
					t.Errorf("%d bytes too many", len(data))
				}
			})
		}
		wg.Wait()
	})
}
