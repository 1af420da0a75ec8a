package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

const patience = 10 * time.Second

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// certificate is what all servers have.
var certificate = sync.OnceValue(func() tls.Certificate {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return s.TLS.Certificates[0]
})

func trust(t testing.TB) *tls.Config {
	t.Helper()
	c, err := x509.ParseCertificate(certificate().Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// newServer returns a server of net/http that counts its open connections.
func newServer(t testing.TB, h http.HandlerFunc, change func(*http.Server)) (s *httptest.Server, open *atomic.Int32) {
	t.Helper()
	open = new(atomic.Int32)
	s = httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	if change != nil {
		change(s.Config)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, open
}

// client is a round tripper whose bodies are streams.
type client struct {
	http.RoundTripper
	own *h2.Transport // nil: net/http
	err atomic.Pointer[h2.ProtocolError]
	n   atomic.Int32 // violations
}

func newOwn(t testing.TB, change func(*h2.Options)) *client {
	t.Helper()
	c := &client{}
	o := h2.Options{
		Dial: new(net.Dialer).DialContext,
		TLS:  trust(t),
		OnProtocolError: func(err *h2.ProtocolError) {
			c.err.Store(err)
			c.n.Add(1)
		},
	}
	if change != nil {
		change(&o)
	}
	own, err := h2.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	c.own, c.RoundTripper = own, own
	return c
}

// stock is net/http with Pump.
type stock struct{ *http.Transport }

func (s stock) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = stream.Pump(resp.Body)
	}
	return resp, err
}

func newStock(t testing.TB, ping time.Duration) *client {
	t.Helper()
	s := stock{&http.Transport{
		TLSClientConfig: trust(t), ForceAttemptHTTP2: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: ping, WriteByteTimeout: 2 * ping},
	}}
	t.Cleanup(s.CloseIdleConnections)
	return &client{RoundTripper: s}
}

// both runs a test over this package's transport and over net/http.
func both(t *testing.T, f func(t *testing.T, c *client)) {
	t.Helper()
	t.Run("own", func(t *testing.T) {
		f(t, newOwn(t, func(o *h2.Options) { o.PingInterval, o.PingTimeout = patience, patience }))
	})
	t.Run("stock", func(t *testing.T) { f(t, newStock(t, patience)) })
}

func (c *client) do(ctx context.Context, method, url string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	return c.RoundTrip(req)
}

// watch opens a stream.
func (c *client) watch(t testing.TB, ctx context.Context, url string) stream.Stream { //nolint:revive // a helper's t is first
	t.Helper()
	resp, err := c.do(ctx, http.MethodGet, url+"?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	body := resp.Body.(stream.Stream) // and nothing else of it is kept
	t.Cleanup(func() { body.Close() })
	return body
}

// get reads a whole response.
func (c *client) get(ctx context.Context, url string) (int, []byte, error) {
	resp, err := c.do(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// peer is a server's end of a connection, which may lie.
type peer struct {
	t testing.TB
	net.Conn
	*http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder

	requests *atomic.Int32 // that the server's faults have met
}

// frameServer runs serve for each connection. It ends them when the test does.
func frameServer(t testing.TB, serve func(*peer)) (url string, conns *atomic.Int32) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate()}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	conns = new(atomic.Int32)
	requests := new(atomic.Int32)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			conns.Add(1)
			wg.Go(func() {
				defer func() {
					mu.Lock()
					delete(open, c)
					mu.Unlock()
					c.(*tls.Conn).NetConn().Close()
				}()
				p := &peer{t: t, Conn: c, Framer: http2.NewFramer(c, c), requests: requests}
				p.AllowIllegalWrites = true
				p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
				p.enc = hpack.NewEncoder(&p.block)
				preface := make([]byte, len(http2.ClientPreface))
				if _, err := io.ReadFull(c, preface); err != nil {
					return
				}
				serve(p)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.(*tls.Conn).NetConn().Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "https://" + l.Addr().String(), conns
}

// until reads frames until one is of interest; nil at the end of the connection. It
// answers settings and pings.
func (p *peer) until(is func(http2.Frame) bool) http2.Frame {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return nil
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = p.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = p.WritePing(true, f.Data)
			}
		}
		if is(f) {
			return f
		}
	}
}

// request reads to the next request, and returns its stream; 0 at the end.
func (p *peer) request() uint32 {
	f := p.until(func(f http2.Frame) bool { _, is := f.(*http2.MetaHeadersFrame); return is })
	if f == nil {
		return 0
	}
	return f.Header().StreamID
}

// wholeRequest reads to the end of the next request that has one, and returns its stream; 0
// at the end of the connection.
func (p *peer) wholeRequest() uint32 {
	f := p.until(func(f http2.Frame) bool {
		ends, can := f.(interface{ StreamEnded() bool })
		return can && ends.StreamEnded()
	})
	if f == nil {
		return 0
	}
	return f.Header().StreamID
}

// drain reads until the connection ends.
func (p *peer) drain() { p.until(func(http2.Frame) bool { return false }) }

// headers encodes headers: names and values.
func (p *peer) headers(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// respond sends headers.
func (p *peer) respond(id uint32, end bool, fields ...string) {
	block := p.headers(fields...)
	n := min(len(block), 16<<10)
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndHeaders: n == len(block), EndStream: end})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), 16<<10)
		_ = p.WriteContinuation(id, n == len(block), block[:n])
	}
}
