package tcpproxy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/test/kube/tcpproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is how long nothing may arrive for a link to count as dead.
const quiet = 150 * time.Millisecond

// server accepts connections and hands them to the test.
type server struct {
	net.Listener
	conns chan *net.TCPConn
}

func newServer(t *testing.T) *server {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: ln, conns: make(chan *net.TCPConn, 16)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.conns <- c.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
		close(s.conns)
		for c := range s.conns {
			_ = c.Close()
		}
	})
	return s
}

// next returns the next connection that reached the server.
func (s *server) next(t *testing.T) *net.TCPConn {
	t.Helper()
	select {
	case c := <-s.conns:
		t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(5 * time.Second):
		t.Fatal("no connection reached the server")
		return nil
	}
}

func newProxy(t *testing.T, target string) *tcpproxy.Proxy {
	t.Helper()
	p, err := tcpproxy.Listen(t.Context(), "127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func dial(t *testing.T, p *tcpproxy.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp4", p.Addr(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func set(t *testing.T, p *tcpproxy.Proxy, m tcpproxy.Mode) {
	t.Helper()
	if err := p.Set(m); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// receive fails unless exactly want arrives within five seconds.
func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v; want %q", got[:n], err, want)
	}
}

// silent fails if anything, the stream's end included, arrives.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	var b [1]byte
	n, err := c.Read(b[:])
	if timeout, ok := errors.AsType[net.Error](err); n != 0 || !ok || !timeout.Timeout() {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

// ended returns how the stream ended.
func ended(t *testing.T, c net.Conn) error {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err := io.Copy(io.Discard, c)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Fatal("the stream did not end")
	}
	return err
}

func TestProxy_PassForwardsBothWaysAndCounts(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	send(t, client, "ping")
	receive(t, remote, "ping")
	send(t, remote, "answer")
	receive(t, client, "answer")
	if got, want := p.Stats(), (tcpproxy.Stats{Accepted: 1, Open: 1, Sent: 4, Received: 6}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

func TestProxy_HalfClosedConnectionDeliversTheAnswer(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	send(t, client, "question")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := ended(t, remote); err != nil {
		t.Fatal(err)
	}
	send(t, remote, "answer")
	receive(t, client, "answer")
	_ = remote.Close()
	if err := ended(t, client); err != nil {
		t.Errorf("end: %v, want an orderly one", err)
	}
}

func TestProxy_CutClosesAndRefusesUntilPass(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	set(t, p, tcpproxy.Mode{State: tcpproxy.Cut})
	ended(t, client)
	ended(t, remote)
	if _, err := net.Dial("tcp4", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while cut: %v, want connection refused", err)
	}
	set(t, p, tcpproxy.Mode{})
	again := dial(t, p)
	send(t, again, "back")
	receive(t, s.next(t), "back")
}

func TestProxy_LastModeHolds(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	for range 50 {
		set(t, p, tcpproxy.Mode{State: tcpproxy.Cut})
		set(t, p, tcpproxy.Mode{})
	}
	client := dial(t, p)
	send(t, client, "x")
	receive(t, s.next(t), "x")
}

func TestProxy_BlackHoleDeliversLater(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	set(t, p, tcpproxy.Mode{State: tcpproxy.BlackHole})
	send(t, client, "lost?")
	send(t, remote, "gone?")
	late := dial(t, p) // accepted
	send(t, late, "late")
	silent(t, remote)
	silent(t, client)
	select {
	case <-s.conns:
		t.Error("a connection went through the black hole")
	default:
	}
	set(t, p, tcpproxy.Mode{})
	receive(t, remote, "lost?")
	receive(t, client, "gone?")
	receive(t, s.next(t), "late")
}

func TestProxy_BlackHoleHidesThatTheServerHasClosed(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	set(t, p, tcpproxy.Mode{State: tcpproxy.BlackHole})
	_ = remote.SetLinger(0)
	_ = remote.Close()
	silent(t, client)
	set(t, p, tcpproxy.Mode{})
	if err := ended(t, client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("end: %v, want the server's reset", err)
	}
}

func TestProxy_LatencyDoesNotLimitThroughput(t *testing.T) {
	const latency = 100 * time.Millisecond
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	set(t, p, tcpproxy.Mode{Latency: latency})
	start := time.Now()
	send(t, client, "ping")
	receive(t, remote, "ping")
	send(t, remote, "pong")
	receive(t, client, "pong")
	if d := time.Since(start); d < 2*latency {
		t.Errorf("round trip took %s with %s each way", d, latency)
	}
	p.Distance(latency)
	start = time.Now()
	send(t, client, "ping")
	receive(t, remote, "ping")
	if d := time.Since(start); d < 2*latency {
		t.Errorf("one way took %s with %s, from twice as far", d, latency)
	}
	p.Distance(0)
	// One megabyte in hundreds of pieces: were each delayed in turn, it would
	// take minutes.
	data := bytes.Repeat([]byte("x"), 1<<20)
	start = time.Now()
	var writer sync.WaitGroup
	writer.Go(func() {
		for piece := range bytes.Lines(bytes.ReplaceAll(data, []byte("xxxx"), []byte("xxx\n"))) {
			if _, err := client.Write(piece); err != nil {
				return
			}
		}
	})
	_ = remote.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(remote, make([]byte, len(data))); err != nil {
		t.Fatal(err)
	}
	writer.Wait()
	if d := time.Since(start); d > 100*latency {
		t.Errorf("1 MiB took %s", d)
	}
}

func TestProxy_ShorterLatencyReleasesWhatIsHeld(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	set(t, p, tcpproxy.Mode{Latency: time.Hour})
	send(t, client, "soon")
	silent(t, remote)
	set(t, p, tcpproxy.Mode{})
	receive(t, remote, "soon")
}

func TestProxy_ThrottleLimitsAllConnectionsTogether(t *testing.T) {
	const rate, each = 256 << 10, 96 << 10
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	set(t, p, tcpproxy.Mode{BytesPerSecond: rate})
	start := time.Now()
	var transfers sync.WaitGroup
	for range 2 {
		client := dial(t, p)
		remote := s.next(t)
		transfers.Go(func() {
			if _, err := remote.Write(make([]byte, each)); err != nil {
				t.Error(err)
			}
		})
		transfers.Go(func() {
			_ = client.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.ReadFull(client, make([]byte, each)); err != nil {
				t.Error(err)
			}
		})
	}
	transfers.Wait()
	want := time.Duration(2*each) * time.Second / rate // 750 ms
	if d := time.Since(start); d < want*8/10 || d > want*4 {
		t.Errorf("%d bytes took %s at %d bytes/s, want about %s", 2*each, d, rate, want)
	}
}

func TestProxy_LiftedThrottleFreesAWaitingTransfer(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	set(t, p, tcpproxy.Mode{BytesPerSecond: 1})
	payload := string(make([]byte, 64<<10)) // days at this rate, save for the burst
	send(t, client, payload)
	set(t, p, tcpproxy.Mode{})
	receive(t, remote, payload)
}

func TestProxy_ResetEndsOpenConnectionsOnly(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	client := dial(t, p)
	remote := s.next(t)
	p.Reset()
	for name, c := range map[string]net.Conn{"client": client, "server": remote} {
		if err := ended(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v, want a reset", name, err)
		}
	}
	again := dial(t, p)
	send(t, again, "on")
	receive(t, s.next(t), "on")
}

func TestProxy_HalfOpenSwallowsAndIsSilent(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	c := dial(t, p)
	send(t, c, "before")
	sc := s.next(t)
	receive(t, sc, "before")
	p.HalfOpen()
	if err := ended(t, sc); err == nil {
		t.Error("the server has not lost its side")
	}
	send(t, c, "swallowed")
	silent(t, c)
	other := dial(t, p)
	send(t, other, "x")
	receive(t, s.next(t), "x")
	_ = c.Close()
	for deadline := time.Now().Add(5 * time.Second); p.Stats().Open > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the half is not let go when the client closes it")
		}
	}
}

func TestProxy_ResetWithinCutsWhatIsSaid(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	c := dial(t, p)
	send(t, c, "x")
	sc := s.next(t)
	receive(t, sc, "x")
	p.ResetWithin(3)
	send(t, sc, "ab")
	receive(t, c, "ab")
	send(t, sc, "cdef")
	got, err := io.ReadAll(c)
	if len(got) > 1 || err == nil {
		t.Errorf("received %q, %v, want at most one more byte and a reset", got, err)
	}
}

func TestProxy_TargetsTakeTurns(t *testing.T) {
	one, two := newServer(t), newServer(t)
	p := newProxy(t, one.Addr().String())
	p.SetTargets(one.Addr().String(), two.Addr().String())
	for range 2 {
		dial(t, p)
		one.next(t)
		dial(t, p)
		two.next(t)
	}
	_ = one.Close()
	for range 2 {
		dial(t, p)
		two.next(t)
	}
}

func TestProxy_MissingServerLooksLikeAReset(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s.Addr().String())
	_ = s.Close()
	client, err := net.Dial("tcp4", p.Addr())
	if err == nil { // the reset may already show in the dial
		defer client.Close()
		err = ended(t, client)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("end: %v, want a reset", err)
	}
}

func TestProxy_StopsWithContextInEveryMode(t *testing.T) {
	for _, m := range []tcpproxy.Mode{{}, {State: tcpproxy.Cut}, {State: tcpproxy.BlackHole}, {Latency: time.Hour}, {BytesPerSecond: 1}} {
		t.Run(m.State.String(), func(t *testing.T) {
			s := newServer(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := tcpproxy.Listen(ctx, "127.0.0.1:0", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			client := dial(t, p)
			s.next(t)
			send(t, client, string(make([]byte, 64<<10)))
			set(t, p, m)
			cancel()
			ended(t, client)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if err := p.Set(tcpproxy.Mode{}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Set on a closed proxy: %v", err)
			}
			if n := p.Stats().Open; n != 0 {
				t.Errorf("%d connections open after Close", n)
			}
		})
	}
}

func TestProxy_InvalidModesAreRejected(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	for _, m := range []tcpproxy.Mode{{State: 7}, {State: -1}, {Latency: -1}, {BytesPerSecond: -1}} {
		if err := p.Set(m); err == nil {
			t.Errorf("Set(%+v) succeeded", m)
		}
	}
	if got := p.Mode(); got != (tcpproxy.Mode{}) {
		t.Errorf("mode %+v after refused ones", got)
	}
}
