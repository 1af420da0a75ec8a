package h2_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
)

// fault is what a server does wrong, or unusual, once its settings are sent.
type fault struct {
	name    string
	serve   func(p *peer)
	answer  string        // that the client gets nevertheless; "": it gets an error
	code    http2.ErrCode // of the violation that is counted; 0: none
	ownOnly bool          // net/http lets it pass
	lives   bool          // the connection survives
}

// answering serves requests after the first, and the first if its stream is not 0, with
// "ok" until the connection ends.
func (p *peer) answering(id uint32) {
	for {
		if id == 0 {
			if id = p.request(); id == 0 {
				return
			}
		}
		p.ok(id)
		id = 0
	}
}

func (p *peer) ok(id uint32) {
	p.respond(id, false, ":status", "200", "content-length", "2")
	_ = p.WriteData(id, true, []byte("ok"))
}

// first runs f for a server's first request, and answers the others.
func first(f func(p *peer, id uint32)) func(*peer) {
	return func(p *peer) {
		id := p.request()
		if id != 0 && p.requests.Add(1) == 1 {
			f(p, id)
			id = 0
		}
		p.answering(id)
	}
}

// raw writes a frame's bytes.
func raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*peer, uint32) {
	return func(p *peer, id uint32) {
		at := stream
		if at == 1 {
			at = id
		}
		_ = p.WriteRawFrame(kind, flags, at, []byte(payload))
	}
}

// often does something very often.
func often(f func(*peer, uint32)) func(*peer, uint32) {
	return func(p *peer, id uint32) {
		done := make(chan struct{})
		go func() { // as else neither could write
			defer close(done)
			_, _ = io.Copy(io.Discard, p.Conn)
		}()
		for range 20_000 {
			f(p, id)
		}
		<-done
	}
}

func head(fields ...string) func(*peer, uint32) {
	return func(p *peer, id uint32) { p.respond(id, false, fields...) }
}

func then(steps ...func(*peer, uint32)) func(*peer, uint32) {
	return func(p *peer, id uint32) {
		for _, f := range steps {
			f(p, id)
		}
	}
}

func ok(p *peer, id uint32) { p.ok(id) }

func data(end bool, s string) func(*peer, uint32) {
	return func(p *peer, id uint32) { _ = p.WriteData(id, end, []byte(s)) }
}

var faults = []fault{
	{name: "none", serve: func(p *peer) { p.answering(0) }, answer: "ok", lives: true},
	{name: "padding", serve: first(then(head(":status", "200"), func(p *peer, id uint32) {
		_ = p.WriteDataPadded(id, false, []byte("o"), make([]byte, 255))
		_ = p.WriteDataPadded(id, false, nil, make([]byte, 100))
		_ = p.WriteDataPadded(id, true, []byte("k"), []byte{})
	})), answer: "ok", lives: true},
	{name: "unknown frames", serve: first(then(raw(99, 255, 0, "abc"), raw(100, 0, 1, ""), ok)), answer: "ok", lives: true},
	{name: "headers byte by byte", serve: first(func(p *peer, id uint32) {
		block := p.headers(":status", "200", "x-a", "b")
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1]})
		for i := 1; i < len(block); i++ {
			_ = p.WriteContinuation(id, i == len(block)-1, block[i:i+1])
		}
		_ = p.WriteData(id, true, []byte("ok"))
	}), answer: "ok", lives: true},
	{name: "1xx first", serve: first(then(head(":status", "103"), head(":status", "100"), ok)), answer: "ok", lives: true},
	{name: "trailers", serve: first(then(head(":status", "200"), data(false, "ok"), func(p *peer, id uint32) {
		p.respond(id, true, "x-trailer", "1")
	})), answer: "ok", lives: true},
	{name: "empty DATA at the end", serve: first(then(head(":status", "200"), data(false, ""), data(false, "ok"), data(true, ""))), answer: "ok", lives: true},
	{name: "refused", serve: first(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x07")), answer: "ok"},
	{name: "gone away before it began", serve: first(raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00")), answer: "ok"},
	{name: "gone away after it began", serve: first(then(raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x00"), ok)), answer: "ok"},
	{name: "gone away in two steps", serve: first(then(raw(http2.FrameGoAway, 0, 0, "\x7f\xff\xff\xff\x00\x00\x00\x00"), raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"))), answer: "ok"},
	{name: "reset", serve: first(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x02")), lives: true},
	{name: "reset in the body", serve: first(then(head(":status", "200"), data(false, "o"), raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08"))), lives: true},
	{name: "reset for a violation", serve: first(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x01")), code: http2.ErrCodeProtocol, ownOnly: true, lives: true},
	{name: "gone away for a violation", serve: first(then(raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x01\x00\x00\x00\x03text"), ok)), answer: "ok", code: http2.ErrCodeFlowControl, ownOnly: true},
	{name: "closed", serve: func(*peer) {}},
	{name: "closed in the body", serve: func(p *peer) {
		if id := p.request(); id == 1 {
			p.respond(id, false, ":status", "200")
			_ = p.WriteData(id, false, []byte("o"))
		}
	}},
	{name: "HTTP/1", serve: func(p *peer) { _, _ = io.WriteString(p, "HTTP/1.1 400 Bad Request\r\n\r\n") }, code: http2.ErrCodeFrameSize},

	{name: "large frame", serve: first(then(head(":status", "200"), func(p *peer, id uint32) { _ = p.WriteRawFrame(http2.FrameData, 0, id, make([]byte, 16<<10+1)) })), code: http2.ErrCodeFrameSize, ownOnly: true},
	{name: "DATA without a stream", serve: first(raw(http2.FrameData, 0, 0, "x")), code: http2.ErrCodeProtocol},
	{name: "DATA before HEADERS", serve: first(data(true, "ok")), code: http2.ErrCodeProtocol},
	{name: "a stream that was not opened", serve: first(raw(http2.FrameData, 0, 7, "x")), code: http2.ErrCodeProtocol},
	{name: "HEADERS for a stream that was not opened", serve: first(func(p *peer, _ uint32) { p.respond(2, false, ":status", "200") }), code: http2.ErrCodeProtocol, ownOnly: true},
	{name: "WINDOW_UPDATE of a stream that was not opened", serve: first(raw(http2.FrameWindowUpdate, 0, 9, "\x00\x00\x00\x01")), code: http2.ErrCodeProtocol, ownOnly: true},
	{name: "push", serve: first(func(p *peer, id uint32) {
		_ = p.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: 2, BlockFragment: p.headers(":method", "GET"), EndHeaders: true})
	}), code: http2.ErrCodeProtocol},
	{name: "long padding", serve: first(then(head(":status", "200"), raw(http2.FrameData, http2.FlagDataPadded, 1, "\x05abc"))), code: http2.ErrCodeProtocol},
	{name: "padding without a length", serve: first(then(head(":status", "200"), raw(http2.FrameData, http2.FlagDataPadded, 1, ""))), code: http2.ErrCodeFrameSize},
	{name: "headers interrupted", serve: first(then(func(p *peer, id uint32) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.headers(":status", "200")})
	}, raw(http2.FramePing, 0, 0, "12345678"))), code: http2.ErrCodeProtocol},
	{name: "garbage in headers", serve: first(raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, "\xff\xff\xff\xff\xff\xff")), code: http2.ErrCodeCompression},
	{name: "a table larger than allowed", serve: first(raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, "\x3f\xe2\xff\x01\x88")), code: http2.ErrCodeCompression},
	{name: "no status", serve: first(head("x-a", "b")), code: http2.ErrCodeProtocol, lives: true},
	{name: "a status that is none", serve: first(head(":status", "2x0")), code: http2.ErrCodeProtocol, lives: true},
	{name: "two statuses", serve: first(head(":status", "200", ":status", "200")), code: http2.ErrCodeProtocol, lives: true},
	{name: "headers of a request", serve: first(head(":status", "200", ":path", "/")), code: http2.ErrCodeProtocol, lives: true},
	{name: "upper case", serve: first(head(":status", "200", "X-A", "b")), code: http2.ErrCodeProtocol, lives: true},
	{name: "a line break in a header", serve: first(head(":status", "200", "x-a", "b\r\nc: d")), code: http2.ErrCodeProtocol, lives: true},
	{name: "large headers", serve: first(head(":status", "200", "x-a", strings.Repeat("x", 40<<10), "x-b", strings.Repeat("x", 30<<10))), ownOnly: true},
	{name: "1xx that ends", serve: first(func(p *peer, id uint32) { p.respond(id, true, ":status", "103") }), code: http2.ErrCodeProtocol, lives: true},
	{name: "101", serve: first(head(":status", "101")), code: http2.ErrCodeProtocol, ownOnly: true, lives: true},
	{name: "trailers that do not end", serve: first(then(head(":status", "200"), data(false, "ok"), head("x-a", "b"))), code: http2.ErrCodeProtocol},
	{name: "trailers with a status", serve: first(then(head(":status", "200"), data(false, "ok"), func(p *peer, id uint32) { p.respond(id, true, ":status", "200") })), code: http2.ErrCodeProtocol},
	{name: "short body", serve: first(then(head(":status", "200", "content-length", "3"), data(true, "ok"))), lives: true},
	{name: "no body", serve: first(func(p *peer, id uint32) { p.respond(id, true, ":status", "200", "content-length", "3") }), ownOnly: true, lives: true},
	{name: "long body", serve: first(then(head(":status", "200", "content-length", "1"), data(true, "ok"))), code: http2.ErrCodeProtocol, ownOnly: true, lives: true},
	{name: "two lengths", serve: first(then(head(":status", "200", "content-length", "2", "content-length", "2"), data(true, "ok"))), code: http2.ErrCodeProtocol, ownOnly: true, lives: true},
	{name: "a length that is none", serve: first(then(head(":status", "200", "content-length", "-2"), data(true, "ok"))), code: http2.ErrCodeProtocol, ownOnly: true, lives: true},
	{name: "an encoding", serve: first(then(head(":status", "200", "content-encoding", "gzip"), data(true, "ok"))), ownOnly: true, lives: true},
	{name: "two encodings", serve: first(then(head(":status", "200", "content-encoding", "identity", "content-encoding", "gzip"), data(true, "ok"))), ownOnly: true, lives: true},
	{name: "a status with a sign", serve: first(then(head(":status", "+200"), data(true, "ok"))), code: http2.ErrCodeProtocol, ownOnly: true, lives: true},
	{name: "a connection's window that is too large", serve: first(raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff")), code: http2.ErrCodeFlowControl},
	{name: "a stream's window that is too large", serve: first(raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff")), code: http2.ErrCodeFlowControl, ownOnly: true, lives: true},
	{name: "a window that grows by nothing", serve: first(raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00")), code: http2.ErrCodeProtocol, lives: true},
	{name: "a window of a size of its own", serve: first(raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00")), code: http2.ErrCodeFrameSize},
	{name: "an initial window that is too large", serve: first(raw(http2.FrameSettings, 0, 0, "\x00\x04\xff\xff\xff\xff")), code: http2.ErrCodeFlowControl},
	{name: "an initial window that overflows a stream's", serve: first(then(raw(http2.FrameWindowUpdate, 0, 1, "\x7f\x00\x00\x00"), raw(http2.FrameSettings, 0, 0, "\x00\x04\x7f\xff\xff\xff"))), code: http2.ErrCodeFlowControl, ownOnly: true},
	{name: "a frame size out of range", serve: first(raw(http2.FrameSettings, 0, 0, "\x00\x05\x00\x00\x00\x64")), code: http2.ErrCodeProtocol},
	{name: "settings of a stream", serve: first(raw(http2.FrameSettings, 0, 1, "")), code: http2.ErrCodeProtocol},
	{name: "acknowledged settings with settings", serve: first(raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "\x00\x04\x00\x00\x00\x01")), code: http2.ErrCodeFrameSize},
	{name: "a ping of a stream", serve: first(raw(http2.FramePing, 0, 1, "12345678")), code: http2.ErrCodeProtocol},

	{name: "headers without end", serve: first(func(p *peer, id uint32) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.headers(":status", "200")})
		for p.WriteContinuation(id, false, nil) == nil { //nolint:revive // until the client closes
		}
	}), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "headers that grow", serve: first(func(p *peer, id uint32) {
		_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.headers(":status", "200")})
		for p.WriteContinuation(id, false, p.headers("x-a", strings.Repeat("x", 1000))) == nil { //nolint:revive // until the client closes
		}
	}), code: http2.ErrCodeProtocol, ownOnly: true},
	{name: "1xx without end", serve: first(often(head(":status", "103"))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of pings", serve: first(often(raw(http2.FramePing, 0, 0, "12345678"))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of answers to pings", serve: first(often(raw(http2.FramePing, http2.FlagPingAck, 0, "12345678"))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of settings", serve: first(often(raw(http2.FrameSettings, 0, 0, ""))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of resets", serve: first(then(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08"), often(raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x08")))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of window updates", serve: first(often(raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x01"))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of empty DATA", serve: first(then(head(":status", "200"), often(data(false, "")))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of unknown frames", serve: first(often(raw(77, 0, 1, ""))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
	{name: "a flood of GOAWAY", serve: first(often(raw(http2.FrameGoAway, 0, 0, "\x7f\xff\xff\xff\x00\x00\x00\x00"))), code: http2.ErrCodeEnhanceYourCalm, ownOnly: true},
}

func TestTransport_SurvivesFaultyServers(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			both(t, func(t *testing.T, c *client) {
				if f.ownOnly && c.own == nil {
					return
				}
				url, conns := frameServer(t, func(p *peer) {
					if err := p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}); err == nil {
						f.serve(p)
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, got, err := c.get(ctx, url)
				if f.answer != "" && (err != nil || string(got) != f.answer) {
					t.Errorf("got %q, %v", got, err)
				}
				if f.answer == "" && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("got %q, %v, want an error", got, err)
				}
				if c.own == nil {
					return
				}
				if f.code != 0 {
					eventually(t, "the violation is counted", func() bool { return c.n.Load() > 0 })
				}
				if v := c.err.Load(); v == nil && f.code != 0 || v != nil && v.Code != f.code {
					t.Errorf("violation is %v, want %v", v, f.code)
				}
				if f.name == "closed" || f.name == "HTTP/1" {
					return
				}
				if _, again, err := c.get(ctx, url); f.name != "closed in the body" && (err != nil || string(again) != "ok") {
					t.Errorf("the next request: %q, %v", again, err)
				}
				if f.lives && conns.Load() != 1 {
					t.Errorf("%d connections", conns.Load())
				}
			})
		})
	}
}

// The first frame has to be SETTINGS.
func TestTransport_WantsSettingsFirst(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		url, _ := frameServer(t, func(p *peer) {
			_ = p.WritePing(false, [8]byte{})
			p.drain()
		})
		if _, got, err := c.get(t.Context(), url); err == nil {
			t.Errorf("got %q", got)
		}
		if v := c.err.Load(); c.own != nil && (v == nil || v.Code != http2.ErrCodeProtocol) {
			t.Errorf("violation is %v", v)
		}
	})
}

func TestTransport_NoticesSilence(t *testing.T) {
	for name, c := range map[string]*client{
		"own":   newOwn(t, func(o *h2.Options) { o.PingInterval, o.PingTimeout = 50*time.Millisecond, 50*time.Millisecond }),
		"stock": newStock(t, 50*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := frameServer(t, func(p *peer) {
				_ = p.WriteSettings()
				p.respond(p.request(), false, ":status", "200")
				for {
					if _, err := p.ReadFrame(); err != nil { // and answers no ping
						return
					}
				}
			})
			s := c.watch(t, t.Context(), url)
			ready := follow(s)
			<-ready
			if n, err := s.ReadNow(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, io.EOF) {
				t.Errorf("a silent server ends a stream with %v", err)
			}
		})
	}
}

func TestTransport_AsksOnlyServersWithStreams(t *testing.T) {
	url, _ := frameServer(t, func(p *peer) {
		_ = p.WriteSettings()
		p.answering(0)
	})
	c := newOwn(t, func(o *h2.Options) {
		o.PingInterval, o.PingTimeout, o.IdleTimeout = 20*time.Millisecond, patience, 200*time.Millisecond
	})
	if _, _, err := c.get(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an idle connection is closed", func() bool { return c.own.Stats() == h2.Stats{} })
}

func TestTransport_RequestWithoutAWindowWaits(t *testing.T) {
	both(t, func(t *testing.T, c *client) {
		url, _ := frameServer(t, func(p *peer) {
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.drain()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.do(ctx, http.MethodPost, url, strings.NewReader("body")); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // there is none
			t.Error(err)
		}
	})
}
