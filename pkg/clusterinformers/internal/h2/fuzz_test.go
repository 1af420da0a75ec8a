package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// script is a connection whose server says what is written down, once it is let.
type script struct {
	net.Conn
	in    io.Reader
	begin chan struct{}
}

func (s *script) Read(p []byte) (int, error) {
	<-s.begin
	return s.in.Read(p)
}

func (*script) Write(p []byte) (int, error)      { return len(p), nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
func (*script) Close() error                     { return nil }

// FuzzConn has a server say anything to two requests: what is held stays within windows,
// all is released, and nothing is left.
func FuzzConn(f *testing.F) {
	server := func(write func(*http2.Framer, func(fields ...string) []byte)) []byte {
		var out, block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		fr := http2.NewFramer(&out, nil)
		fr.AllowIllegalWrites = true
		_ = fr.WriteSettings()
		write(fr, func(fields ...string) []byte {
			block.Reset()
			for i := 0; i < len(fields); i += 2 {
				_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
			}
			return bytes.Clone(block.Bytes())
		})
		return out.Bytes()
	}
	f.Add(server(func(fr *http2.Framer, h func(...string) []byte) {
		_ = fr.WriteSettingsAck()
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h(":status", "200", "content-length", "10"), EndHeaders: true})
		_ = fr.WriteDataPadded(1, false, []byte("01234"), make([]byte, 10))
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: h(":status", "103")})
		_ = fr.WriteContinuation(3, true, h("a", "b"))
		_ = fr.WriteData(1, true, []byte("56789"))
		_ = fr.WritePing(true, [8]byte{7: 1})
		_ = fr.WriteRSTStream(3, http2.ErrCodeRefusedStream)
	}))
	f.Add(server(func(fr *http2.Framer, h func(...string) []byte) {
		_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		_ = fr.WriteWindowUpdate(0, 100)
		_ = fr.WriteWindowUpdate(1, 100)
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: h(":status", "404"), EndHeaders: true})
		_ = fr.WriteData(3, false, make([]byte, 16<<10))
		_ = fr.WriteGoAway(1, http2.ErrCodeNo, []byte("text"))
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h("x", "y"), EndHeaders: true, EndStream: true})
		_ = fr.WritePing(false, [8]byte{})
		_ = fr.WriteRawFrame(77, 0, 0, []byte("?"))
	}))
	f.Fuzz(func(t *testing.T, in []byte) {
		wire := &script{in: bytes.NewReader(in), begin: make(chan struct{})}
		tr, err := New(Options{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no more") }})
		if err != nil {
			t.Fatal(err)
		}
		c := newConn(tr, "a", wire, wire, &tls.ConnectionState{})
		tr.mu.Lock()
		tr.hosts["a"] = &host{address: "a", dials: map[*dial]struct{}{}, conns: []*conn{c}}
		tr.open[c] = struct{}{}
		c.start()
		tr.mu.Unlock()
		var held atomic.Int64
		charge := func(n int64) error {
			if now := held.Add(n); now < 0 || now > 3*minWindow {
				t.Errorf("%d bytes are held", now)
			}
			return nil
		}
		var wg sync.WaitGroup
		for _, body := range []io.Reader{nil, bytes.NewReader(make([]byte, 100<<10))} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a/", body)
			if err != nil {
				t.Fatal(err)
			}
			head, err := newRequestHead(req)
			if err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			c.reserved++ // two, though the settings have not come
			c.mu.Unlock()
			wg.Go(func() {
				o := RequestOptions{Window: minWindow, Charge: charge}
				if resp, err := c.roundTrip(req, head, body, o); err == nil {
					_, _ = io.CopyN(io.Discard, resp.Body, 3)
					resp.Body.Close()
				}
			})
		}
		for c.used() > 0 { // both are open
			c.mu.Lock()
			n := len(c.streams)
			c.mu.Unlock()
			if n == 2 {
				break
			}
		}
		close(wire.begin)
		wg.Wait()
		tr.Close()
		if n := held.Load(); n != 0 {
			t.Errorf("%d bytes are held at the end", n)
		}
	})
}
