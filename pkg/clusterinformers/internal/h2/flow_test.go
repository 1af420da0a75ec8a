package h2_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// open opens a stream with options.
func (c *client) open(t *testing.T, url string, o h2.RequestOptions) stream.Stream {
	t.Helper()
	resp, err := c.do(h2.WithRequestOptions(t.Context(), o), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body.(stream.Stream)
}

// flooding answers with zeros as fast as windows allow, and says how many it has sent on
// the first stream.
func flooding(sent *atomic.Int64) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			n, _ := w.Write(make([]byte, 1<<10))
			_ = http.NewResponseController(w).Flush()
			sent.Add(int64(n))
		}
	}
}

// settled waits until a number no longer grows.
func settled(t *testing.T, n *atomic.Int64) int64 {
	t.Helper()
	last, since := int64(-1), time.Now()
	eventually(t, "the server stops sending", func() bool {
		if now := n.Load(); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > 50*time.Millisecond
	})
	return last
}

func TestStream_WindowBoundsWhatComes(t *testing.T) {
	var sent, held atomic.Int64
	server, _ := newServer(t, flooding(&sent), nil)
	c := newOwn(t, nil)
	s := c.open(t, server.URL, h2.RequestOptions{Watch: true, Window: 64 << 10, Charge: func(n int64) error { held.Add(n); return nil }})
	if n := settled(t, &sent); n < 64<<10 || n > 66<<10 {
		t.Errorf("%d bytes came", n)
	}
	if n := held.Load(); n < 64<<10 || n > 132<<10 {
		t.Errorf("charged %d", n)
	}
	s.(interface{ Grow(int) }).Grow(100 << 10)
	if n := settled(t, &sent); n < 164<<10 || n > 166<<10 {
		t.Errorf("after it grew, %d bytes came", n)
	}
	if _, err := io.CopyN(io.Discard, s, 1<<20); err != nil {
		t.Error(err)
	}
	if n := settled(t, &sent); n > 1<<20+166<<10 {
		t.Errorf("after 1 MiB was read, %d bytes came", n)
	}
	s.Close()
	eventually(t, "what is dropped is not charged", func() bool { return held.Load() == 0 })
}

func TestStream_OthersGoOnWhileOneIsNotRead(t *testing.T) {
	var sent atomic.Int64
	server, open := newServer(t, flooding(&sent), nil)
	c := newOwn(t, nil)
	for range 20 { // 20 MiB that nobody reads
		c.open(t, server.URL, h2.RequestOptions{})
	}
	settled(t, &sent)
	if _, err := io.CopyN(io.Discard, c.open(t, server.URL, h2.RequestOptions{}), 5<<20); err != nil {
		t.Error(err)
	}
	if n := open.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestStream_IsResetWhereNobodyPays(t *testing.T) {
	var sent, held atomic.Int64
	server, _ := newServer(t, flooding(&sent), nil)
	c := newOwn(t, nil)
	broke := errors.New("over budget")
	s := c.open(t, server.URL, h2.RequestOptions{Charge: func(n int64) error {
		if held.Load()+n > 100<<10 {
			return broke
		}
		held.Add(n)
		return nil
	}})
	if _, err := s.ReadNow(nil); err != nil {
		t.Error(err)
	}
	eventually(t, "it ends", func() bool { _, err := s.ReadNow(make([]byte, 1)); return errors.Is(err, broke) })
	eventually(t, "nothing is charged", func() bool { return held.Load() == 0 })
	if c.n.Load() != 0 {
		t.Error("counted as a violation")
	}
}

func TestStream_PacksSmallEvents(t *testing.T) {
	var held atomic.Int64
	begin := make(chan struct{})
	server, _ := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		for range begin {
			_, _ = io.WriteString(w, "event")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}, nil)
	c := newOwn(t, nil)
	s := c.open(t, server.URL, h2.RequestOptions{Charge: func(n int64) error { held.Add(n); return nil }})
	for range 100 {
		begin <- struct{}{}
	}
	close(begin)
	got := ""
	ready := follow(s)
	for len(got) < 500 {
		<-ready
		if n := held.Load(); n > 8<<10 {
			t.Errorf("charged %d for %d bytes", n, 500-len(got))
		}
		some, err := readNow(s)
		if !errors.Is(err, stream.ErrNothing) {
			t.Fatal(err)
		}
		got += some
	}
	if got != strings.Repeat("event", 100) || held.Load() != 0 {
		t.Errorf("got %d bytes; charged are %d", len(got), held.Load())
	}
}

// violating is a server that answers a first request, and then does something.
func violating(t *testing.T, f func(p *peer, id uint32)) string {
	t.Helper()
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		id := p.request()
		if id == 0 {
			return
		}
		p.respond(id, false, ":status", "200")
		f(p, id)
		p.drain()
	})
	return url
}

func TestConn_EndsWhenAWindowIsIgnored(t *testing.T) {
	var told atomic.Uint32
	url := violating(t, func(p *peer, id uint32) {
		for range 5 {
			_ = p.WriteDataPadded(id, false, make([]byte, 16<<10-256), make([]byte, 255))
		}
		if g, ok := p.until(func(f http2.Frame) bool { _, is := f.(*http2.GoAwayFrame); return is }).(*http2.GoAwayFrame); ok {
			told.Store(uint32(g.ErrCode))
		}
	})
	c := newOwn(t, nil)
	s := c.open(t, url, h2.RequestOptions{Watch: true, Window: 64 << 10})
	eventually(t, "it ends", func() bool { return c.own.Stats() == h2.Stats{} })
	var v *h2.ProtocolError
	if _, err := io.Copy(io.Discard, s); !errors.As(err, &v) || v.Code != http2.ErrCodeFlowControl {
		t.Error(err)
	}
	eventually(t, "the server is told", func() bool { return told.Load() == uint32(http2.ErrCodeFlowControl) })
}

func TestConn_EndsWhenAStreamGoesOnAfterItsEnd(t *testing.T) {
	c := newOwn(t, nil)
	s := c.watch(t, t.Context(), violating(t, func(p *peer, id uint32) {
		_ = p.WriteData(id, true, []byte("all"))
		_ = p.WriteData(id, false, []byte("more"))
	}))
	if got, err := io.ReadAll(s); err != nil || string(got) != "all" {
		t.Errorf("%q, %v", got, err)
	}
	eventually(t, "it ends", func() bool { return c.own.Stats() == h2.Stats{} })
	if v := c.err.Load(); v == nil || v.Code != http2.ErrCodeStreamClosed {
		t.Error(v)
	}
}

// What a server sent before it knew of a reset is dropped, and its window returned.
func TestConn_DropsWhatComesForResetStreams(t *testing.T) {
	reset := make(chan struct{})
	c := newOwn(t, nil)
	url := violating(t, func(p *peer, id uint32) {
		p.until(func(f http2.Frame) bool { _, is := f.(*http2.RSTStreamFrame); return is })
		for range 2000 { // 32 MiB
			_ = p.WriteData(id, false, make([]byte, 16<<10))
		}
		close(reset)
		p.answering(0)
	})
	c.watch(t, t.Context(), url).Close()
	<-reset
	if _, got, err := c.get(t.Context(), url); err != nil || string(got) != "ok" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	if c.n.Load() != 0 {
		t.Error(c.err.Load())
	}
}

// stuck is a connection that can no longer be written to.
type stuck struct {
	net.Conn
	on    *atomic.Bool
	ended chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.on.Load() {
		<-s.ended
		return 0, errors.New("timed out")
	}
	return s.Conn.Write(b)
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() && time.Until(at) < 0 {
		close(s.ended)
	}
	return s.Conn.SetWriteDeadline(at)
}

func TestConn_EndsWhenItsQueueIsFull(t *testing.T) {
	var on atomic.Bool
	c := newOwn(t, func(o *h2.Options) {
		o.PingInterval = patience
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &stuck{conn, &on, make(chan struct{})}, err
		}
	})
	s := c.watch(t, t.Context(), violating(t, func(*peer, uint32) {}))
	on.Store(true)
	for i := 0; c.own.Stats().Conns == 1 && i < 1e6; i++ {
		s.(interface{ Grow(int) }).Grow(1)
	}
	ready := follow(s)
	<-ready
	if _, err := s.ReadNow(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Error(err)
	}
}

func TestTransport_NoticesServersThatDoNotRead(t *testing.T) {
	for name, c := range map[string]*client{
		"own":   newOwn(t, func(o *h2.Options) { o.PingInterval, o.PingTimeout = 100*time.Millisecond, 100*time.Millisecond }),
		"stock": newStock(t, 100*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := frameServer(t, func(p *peer) {
				_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
				_ = p.WriteWindowUpdate(0, 1<<30)
				p.request()
				<-p.t.Context().Done()
			})
			if _, err := c.do(t.Context(), http.MethodPost, url, bytes.NewReader(make([]byte, 100<<20))); err == nil { //nolint:bodyclose // there is none
				t.Error("answered")
			}
		})
	}
}
