package h2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
)

// partial is a body of an unknown length, whose end comes when it is closed.
type partial struct {
	first io.Reader
	ended chan struct{}
}

func (p *partial) Read(b []byte) (int, error) {
	if n, err := p.first.Read(b); err == nil {
		return n, nil
	}
	<-p.ended
	return 0, io.EOF
}

// A server may take a window back below zero: what has no bytes is sent nevertheless.
func TestConn_EndsBodiesWithoutAWindow(t *testing.T) {
	body := &partial{strings.NewReader("body"), make(chan struct{})}
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		id := p.request()
		p.until(func(f http2.Frame) bool { d, is := f.(*http2.DataFrame); return is && len(d.Data()) > 0 })
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		_ = p.WritePing(false, [8]byte{}) // behind them
		p.until(func(f http2.Frame) bool { g, is := f.(*http2.PingFrame); return is && g.IsAck() })
		close(body.ended)
		p.until(func(f http2.Frame) bool { d, is := f.(*http2.DataFrame); return is && d.StreamEnded() })
		p.answering(id)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := newOwn(t, nil).do(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "ok" {
		t.Errorf("%q, %v", got, err)
	}
}

// What SETTINGS do not mention stays as it was.
func TestConn_KeepsLimitsThatLaterSettingsDoNotMention(t *testing.T) {
	url, conns := frameServer(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100})
		_ = p.WriteSettings()
		_ = p.WriteSettings()
		for id := p.request(); id != 0; id = p.request() {
			p.respond(id, false, ":status", "200")
		}
	})
	c := newOwn(t, nil)
	for range 101 {
		c.watch(t, t.Context(), url)
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections for 101 watches of 100 streams", n)
	}
}

func TestConn_EndsWhenSettingsAreMany(t *testing.T) {
	many := make([]http2.Setting, 2000) // each would touch all streams
	for i := range many {
		many[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
	}
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		p.request()
		_ = p.WriteSettings(many...)
		p.drain()
	})
	c := newOwn(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var v *h2.ProtocolError
	if _, _, err := c.get(ctx, url); !errors.As(err, &v) || v.Code != http2.ErrCodeEnhanceYourCalm {
		t.Error(err)
	}
}

// Requests that give up before a server counts as silent leave resets, which it has to
// answer.
func TestConn_NoticesSilenceBetweenRequestsThatGiveUp(t *testing.T) {
	url, conns := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		p.drainSilently()
	})
	c := newOwn(t, func(o *h2.Options) { o.PingInterval, o.PingTimeout = 100*time.Millisecond, 100*time.Millisecond })
	eventually(t, "another connection is made", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := c.get(ctx, url); err == nil {
			t.Error("answered")
		}
		return conns.Load() > 1
	})
}

// deadlines notes the deadline for writes that a connection is left with.
type deadlines struct {
	net.Conn
	last *atomic.Pointer[time.Time]
}

func (d deadlines) SetWriteDeadline(at time.Time) error {
	d.last.Store(&at)
	return d.Conn.SetWriteDeadline(at)
}

// TLS writes by itself, such as for an update of keys: a deadline that is past would break
// the connection.
func TestConn_LeavesNoDeadlineBetweenWrites(t *testing.T) {
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		p.answering(0)
	})
	var last atomic.Pointer[time.Time]
	c := newOwn(t, func(o *h2.Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return deadlines{conn, &last}, err
		}
	})
	if _, _, err := c.get(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is no deadline", func() bool { return last.Load().IsZero() })
}

// Padding counts against a stream's window, though nobody reads it.
func TestStream_ReturnsTheWindowOfPadding(t *testing.T) {
	c := newOwn(t, nil)
	s := c.open(t, violating(t, func(p *peer, id uint32) {
		for left := 64 << 10; left >= 256; left -= 256 {
			_ = p.WriteDataPadded(id, false, nil, make([]byte, 255))
		}
		p.until(func(f http2.Frame) bool {
			u, is := f.(*http2.WindowUpdateFrame)
			return is && u.StreamID == id
		})
		_ = p.WriteData(id, true, []byte("end"))
	}), h2.RequestOptions{Watch: true, Window: 64 << 10})
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(s)
		got <- string(b)
	}()
	select {
	case s := <-got:
		if s != "end" {
			t.Errorf("got %q", s)
		}
	case <-time.After(patience):
		t.Error("the stream stands still")
	}
}

// A server that has said something of a request has begun with it.
func TestPool_ResendsNothingThatWasBegun(t *testing.T) {
	var requests atomic.Int32
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		for id := p.request(); id != 0; id = p.request() {
			requests.Add(1)
			p.respond(id, false, ":status", "103")
			_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}
	})
	if _, err := newOwn(t, nil).do(t.Context(), http.MethodPost, url, strings.NewReader("body")); err == nil { //nolint:bodyclose // there is none
		t.Error("answered")
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// Servers refuse what comes before their settings are known.
func TestPool_WaitsWhereServersAllowFewStreams(t *testing.T) {
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2})
		var mu sync.Mutex
		open := 0
		var wg sync.WaitGroup
		defer wg.Wait()
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			mu.Lock()
			switch f := f.(type) {
			case *http2.PingFrame:
				_ = p.WritePing(true, f.Data)
			case *http2.MetaHeadersFrame:
				if open == 2 {
					_ = p.WriteRSTStream(f.StreamID, http2.ErrCodeRefusedStream)
					break
				}
				open++
				wg.Go(func() {
					mu.Lock()
					open--
					p.ok(f.StreamID)
					mu.Unlock()
				})
			}
			mu.Unlock()
		}
	})
	c := newOwn(t, nil)
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			if _, got, err := c.get(t.Context(), url); err != nil || string(got) != "ok" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// An answer to a ping may overtake what a server has queued for a stream that was reset.
func TestConn_DropsWhatComesAfterResetsAreAcknowledged(t *testing.T) {
	acknowledged := make(chan struct{})
	url := violating(t, func(p *peer, id uint32) {
		p.until(func(f http2.Frame) bool { g, is := f.(*http2.PingFrame); return is && !g.IsAck() })
		<-acknowledged
		for range 16 {
			_ = p.WriteData(id, false, make([]byte, 16<<10))
		}
		p.respond(id, true, "x-trailer", "1")
		p.answering(0)
	})
	c := newOwn(t, nil)
	c.watch(t, t.Context(), url).Close()
	eventually(t, "the reset is acknowledged", func() bool { return c.own.Stats() == h2.Stats{Conns: 1} })
	close(acknowledged)
	if _, got, err := c.get(t.Context(), url); err != nil || string(got) != "ok" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	if c.n.Load() != 0 {
		t.Error(c.err.Load())
	}
}

// All that wait for a connection learn that nothing comes over it.
func TestPool_TellsWaitersThatAServerIsSilent(t *testing.T) {
	url, conns := frameServer(t, (*peer).drainSilently)
	c := newOwn(t, func(o *h2.Options) { o.PingInterval, o.PingTimeout = 500*time.Millisecond, 500*time.Millisecond })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, _, err := c.get(t.Context(), url); err == nil || !strings.Contains(err.Error(), "does not answer pings") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := conns.Load(); n > 2 {
		t.Errorf("%d connections", n)
	}
}

// drainSilently reads, and answers nothing.
func (p *peer) drainSilently() {
	for {
		if _, err := p.ReadFrame(); err != nil {
			return
		}
	}
}
