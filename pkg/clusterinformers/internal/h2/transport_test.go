package h2_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// holding answers requests with headers, and leaves streams open until the client resets
// them. It counts streams at most open at once on a connection.
func holding(limit uint32, ackPings func() bool) func(*peer) {
	return func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: limit})
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				p.respond(f.StreamID, false, ":status", "200")
			case *http2.PingFrame:
				if ackPings() {
					_ = p.WritePing(true, f.Data)
				}
			}
		}
	}
}

func always() bool { return true }

func TestPool_OpensConnectionsAsServersAllow(t *testing.T) {
	url, conns := frameServer(t, holding(10, always))
	c := newOwn(t, nil)
	streams := []stream.Stream{c.watch(t, t.Context(), url)}
	eventually(t, "the settings have come", func() bool { return c.own.Stats().Streams == 1 })
	for len(streams) < 6 {
		streams = append(streams, c.watch(t, t.Context(), url))
	}
	if n := conns.Load(); n != 1 {
		t.Fatalf("%d connections for 6 watches of 10 streams, 4 of them reserved", n)
	}
	streams = append(streams, c.watch(t, t.Context(), url))
	if n := conns.Load(); n != 2 {
		t.Fatalf("%d connections for 7 watches", n)
	}
	for range 4 { // on the first connection
		resp, err := c.do(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, resp.Body.(stream.Stream))
	}
	if got, want := c.own.Stats(), (h2.Stats{Conns: 2, Streams: 11}); got != want {
		t.Errorf("open are %+v, want %+v", got, want)
	}
	for _, s := range streams {
		s.Close()
	}
	eventually(t, "resets are acknowledged", func() bool { return c.own.Stats() == h2.Stats{Conns: 2} })
}

func TestPool_WatchesThatAreReopenedShareTheConnections(t *testing.T) {
	var mu sync.Mutex
	held := map[*peer]int{}
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 14})
		for id := p.request(); id != 0; id = p.request() {
			mu.Lock()
			held[p]++
			mu.Unlock()
			p.respond(id, false, ":status", "200")
		}
	})
	c := newOwn(t, nil)
	streams := []stream.Stream{c.watch(t, t.Context(), url)}
	eventually(t, "the settings have come", func() bool { return c.own.Stats().Streams == 1 })
	for len(streams) < 11 {
		streams = append(streams, c.watch(t, t.Context(), url))
	}
	for _, s := range streams[:4] { // of ten over the first connection
		s.Close()
		c.watch(t, t.Context(), url)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := slices.Sorted(maps.Values(held)); !slices.Equal(got, []int{5, 10}) {
		t.Errorf("watches were opened %v times over the connections", got)
	}
}

func TestPool_CountsResetStreamsUntilTheyAreAcknowledged(t *testing.T) {
	var ack atomic.Bool
	url, conns := frameServer(t, holding(8, ack.Load))
	c := newOwn(t, func(o *h2.Options) { o.PingInterval, o.MaxConns = patience, 1 })
	for range 4 {
		c.watch(t, t.Context(), url).Close()
	}
	if got, want := c.own.Stats(), (h2.Stats{Conns: 1, Streams: 4}); got != want {
		t.Errorf("open are %+v, want %+v", got, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.do(ctx, http.MethodGet, url+"?watch=1", nil); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // there is none
		t.Errorf("a fifth watch: %v", err)
	}
	ack.Store(true)
	resp, err := c.do(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestPool_WaitsForAStream(t *testing.T) {
	allow := make(chan struct{})
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		<-allow
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
		p.answering(0)
	})
	c := newOwn(t, func(o *h2.Options) { o.MaxConns = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, _ = c.get(ctx, url) // before the settings have come, one may be sent
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, got, err := c.get(t.Context(), url); err != nil || string(got) != "ok" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	eventually(t, "requests wait", func() bool { return c.own.Stats().Waiting == 20 })
	close(allow)
	wg.Wait()
}

func TestPool_DrainsConnectionsAndAtMostFour(t *testing.T) {
	url, conns := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		id := p.request()
		p.respond(id, false, ":status", "200")
		_ = p.WriteGoAway(id, http2.ErrCodeNo, nil)
		_ = p.WriteData(id, false, []byte("after"))
		p.drain()
	})
	c := newOwn(t, nil)
	var streams []stream.Stream
	for i := range 6 {
		s := c.watch(t, t.Context(), url)
		b := make([]byte, 10)
		if n, err := s.Read(b); err != nil || string(b[:n]) != "after" {
			t.Fatalf("a draining stream: %q, %v", b[:n], err)
		}
		streams = append(streams, s)
		eventually(t, "it drains", func() bool { return c.own.Stats() == h2.Stats{Draining: min(i+1, 4), Streams: min(i+1, 4)} })
	}
	for i, s := range streams {
		if _, err := s.ReadNow(make([]byte, 1)); errors.Is(err, stream.ErrNothing) != (i >= 2) {
			t.Errorf("stream %d: %v", i, err)
		}
		s.Close()
	}
	eventually(t, "drained connections close", func() bool { return c.own.Stats() == h2.Stats{} })
	if n := conns.Load(); n != 6 {
		t.Errorf("%d connections", n)
	}
}

func TestPool_ResendsBodiesThatItCan(t *testing.T) {
	for _, can := range []bool{true, false} {
		refused := first(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x07"))
		url, _ := frameServer(t, func(p *peer) {
			_ = p.WriteSettings()
			refused(p)
		})
		c := newOwn(t, nil)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		if !can {
			req.GetBody = nil
		}
		resp, err := c.RoundTrip(req)
		if (err == nil) != can {
			t.Errorf("body can be read again: %t; error is %v", can, err)
		}
		var reset *h2.ResetError
		if err == nil {
			resp.Body.Close()
		} else if !errors.As(err, &reset) || reset.Code != http2.ErrCodeRefusedStream {
			t.Error(err)
		}
	}
}

func TestPool_EndsAfterRefusals(t *testing.T) {
	url, conns := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		for id := p.request(); id != 0; id = p.request() {
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}
	})
	c := newOwn(t, nil)
	if _, _, err := c.get(t.Context(), url); err == nil {
		t.Error("answered")
	}
	if n := conns.Load(); n > 5 {
		t.Errorf("%d connections", n)
	}
}

func TestPool_TellsWaitersThatDialsFail(t *testing.T) {
	fault := errors.New("no route")
	dials := make(chan struct{})
	c := newOwn(t, func(o *h2.Options) {
		o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-dials:
				return nil, fault
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			if _, _, err := c.get(t.Context(), "https://192.0.2.1"); !errors.Is(err, fault) {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return c.own.Stats().Waiting == 300 })
	close(dials)
	wg.Wait()
}

func TestTransport_ClosesIdleConnectionsNowAndOthersLater(t *testing.T) {
	e := &events{}
	server, open := newServer(t, e.ServeHTTP, nil)
	c := newOwn(t, nil)
	s := c.watch(t, t.Context(), server.URL+"/a")
	c.own.CloseIdleConnections()
	e.at("/a") <- "still"
	b := make([]byte, 10)
	if n, err := s.Read(b); err != nil || string(b[:n]) != "still" {
		t.Errorf("%q, %v", b[:n], err)
	}
	s.Close()
	eventually(t, "it closes with its last stream", func() bool { return open.Load() == 0 })
	c.watch(t, t.Context(), server.URL+"/b").Close()
	if n := open.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	c.own.CloseIdleConnections()
	eventually(t, "an idle one closes at once", func() bool { return open.Load() == 0 })
}

// What a server does never holds up the end.
func TestTransport_CloseEndsEverythingAtOnce(t *testing.T) {
	silent, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = p.WriteWindowUpdate(0, 1<<30)
		if id := p.request(); id != 0 {
			p.respond(id, false, ":status", "200")
		}
		p.request()
		<-p.t.Context().Done() // and reads nothing more
	})
	hole, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	c := newOwn(t, nil)
	s := c.watch(t, t.Context(), silent)
	ready := follow(s)
	var wg sync.WaitGroup
	failing := func(f func() error) {
		wg.Go(func() {
			if err := f(); err == nil || !errors.Is(err, h2.ErrClosed) && !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		})
	}
	failing(func() error { // that writes
		_, err := c.do(t.Context(), http.MethodPost, silent, endless{}) //nolint:bodyclose // there is none
		return err
	})
	failing(func() error { // that waits for a handshake
		_, _, err := c.get(t.Context(), "https://"+hole.Addr().String())
		return err
	})
	failing(func() error { // that reads
		_, err := s.Read(make([]byte, 1))
		return err
	})
	eventually(t, "they are under way", func() bool { return c.own.Stats() == h2.Stats{Conns: 1, Streams: 2, Waiting: 1} })
	begin := time.Now()
	c.own.Close()
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
	wg.Wait()
	<-ready
	if _, err := s.ReadNow(make([]byte, 1)); !errors.Is(err, h2.ErrClosed) {
		t.Error(err)
	}
	if _, _, err := c.get(t.Context(), silent); !errors.Is(err, h2.ErrClosed) {
		t.Error(err)
	}
	c.own.Close()
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestTransport_FallsBackWithoutALPN(t *testing.T) {
	server, _ := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Proto, string(body))
	}, func(s *http.Server) { s.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} })
	server.TLS.NextProtos = []string{"http/1.1"}
	c := newOwn(t, nil)
	_, _, err := c.get(t.Context(), server.URL)
	var alpn *h2.ALPNError
	if !errors.As(err, &alpn) || alpn.Protocol != "http/1.1" {
		t.Errorf("without a fallback: %v", err)
	}
	var told atomic.Int32
	stock := newStock(t, patience)
	c = newOwn(t, func(o *h2.Options) { o.Fallback, o.OnFallback = stock, func(*h2.ALPNError) { told.Add(1) } })
	for range 3 {
		resp, err := c.do(t.Context(), http.MethodPost, server.URL, strings.NewReader(" body"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != "HTTP/1.1 body" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := told.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
	plain := strings.Replace(server.URL, "https", "http", 1)
	if _, err := newOwn(t, nil).do(t.Context(), http.MethodGet, plain, nil); err == nil { //nolint:bodyclose // there is none
		t.Error("plain http was sent")
	}
}

func TestTransport_VerifiesTLSAndResumesNoSession(t *testing.T) {
	var resumed atomic.Int32
	server, _ := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.TLS.DidResume {
			resumed.Add(1)
		}
	}, nil)
	c := newOwn(t, func(o *h2.Options) { o.TLS.ClientSessionCache = tls.NewLRUClientSessionCache(10) })
	for range 3 {
		if _, _, err := c.get(t.Context(), server.URL); err != nil {
			t.Fatal(err)
		}
		c.own.CloseIdleConnections()
	}
	if n := resumed.Load(); n > 0 {
		t.Errorf("%d sessions were resumed", n)
	}
	for name, change := range map[string]func(*h2.Options){
		"another name": func(o *h2.Options) { o.TLS.ServerName = "other.invalid" },
		"no authority": func(o *h2.Options) { o.TLS = nil },
	} {
		_, _, err := newOwn(t, change).get(t.Context(), server.URL)
		var verification *tls.CertificateVerificationError
		if !errors.As(err, &verification) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := newOwn(t, func(o *h2.Options) { o.TLS.ServerName = "example.com" }).get(t.Context(), server.URL); err != nil {
		t.Error(err)
	}
}

func TestTransport_RefusesRequestsThatAreNotValid(t *testing.T) {
	url, conns := frameServer(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 2000})
		for id := p.wholeRequest(); id != 0; id = p.wholeRequest() { // an answer before its end would end it
			p.ok(id)
		}
	})
	c := newOwn(t, nil)
	if _, _, err := c.get(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*http.Request){
		"method":       func(r *http.Request) { r.Method = "G T" },
		"CONNECT":      func(r *http.Request) { r.Method = http.MethodConnect },
		"host":         func(r *http.Request) { r.Host = "a\nb" },
		"path":         func(r *http.Request) { r.URL.Opaque = "x" },
		"query":        func(r *http.Request) { r.URL.RawQuery = "a=b HTTP/1.1\r\nc: d" },
		"header name":  func(r *http.Request) { r.Header["a b"] = []string{"c"} },
		"header value": func(r *http.Request) { r.Header.Set("a", "b\r\nc: d") },
		"trailer":      func(r *http.Request) { r.Trailer = http.Header{"A": nil} },
		"size":         func(r *http.Request) { r.Header.Set("a", strings.Repeat("x", 3000)) },
		"short body":   func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("a")), 2 },
		"long body":    func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("abc")), 2 },
		"broken body":  func(r *http.Request) { r.Body = io.NopCloser(broken{}) },
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		if resp, err := c.RoundTrip(req); err == nil {
			resp.Body.Close()
			t.Errorf("%s: sent", name)
		}
	}
	if _, got, err := c.get(t.Context(), url); err != nil || string(got) != "ok" || conns.Load() != 1 {
		t.Errorf("afterwards: %q, %v, %d connections", got, err, conns.Load())
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("broken") }
