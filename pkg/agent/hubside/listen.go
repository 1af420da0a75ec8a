package hubside

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

const (
	maxHandshakes    = 256 // at a time; more are refused at once
	handshakeTimeout = 5 * time.Second
	maxHTTPConns     = 128 // that wait to be served or are
)

// accept takes connections until the listener is closed, and waits for those under way.
func (s *Server) accept(ctx context.Context) error {
	var shaking sync.WaitGroup
	defer shaking.Wait()
	for {
		c, err := s.o.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return err
			}
			s.o.Logger.Warn("accepting a connection of an agent failed", "error", err)
			if sleep.For(ctx, 100*time.Millisecond) != nil { // of file descriptors, most likely
				return err
			}
			continue
		}
		select {
		case s.handshake <- struct{}{}:
		default: // it comes again later
			refuse(c)
			continue
		}
		shaking.Go(func() {
			defer func() {
				<-s.handshake
				if p := recover(); p != nil {
					s.o.Logger.Error("a connection of an agent failed", "error", p, "stack", string(debug.Stack()))
					_ = c.Close() // nothing to report to
				}
			}()
			s.receive(ctx, c)
		})
	}
}

// refuse closes a connection without a word, and without waiting.
func refuse(c net.Conn) {
	if t, is := c.(*net.TCPConn); is {
		_ = t.SetLinger(0) //nolint:errcheck // it is closed all the same
	}
	_ = c.Close() // nothing to report to
}

// keepAlive has the kernel ask whether an agent lives that nothing is asked of, and keeps the way through NATs.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// receive finds out what a connection is for.
func (s *Server) receive(ctx context.Context, c net.Conn) {
	if t, is := c.(*net.TCPConn); is {
		_ = t.SetKeepAliveConfig(keepAlive) //nolint:errcheck // HTTP/2 asks, too
	}
	config, err := s.tls()
	if err != nil {
		s.o.Logger.Error("there is no certificate for agents", "error", err)
		refuse(c)
		return
	}
	secure := tls.Server(c, config)
	hello, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(hello); err != nil {
		s.o.Logger.Debug("a handshake with an agent failed", "address", c.RemoteAddr().String(), "error", err)
		_ = c.Close() // nothing to report to
		return
	}
	state := secure.ConnectionState()
	if state.NegotiatedProtocol != joining.Protocol {
		s.http.hand(secure)
		return
	}
	err = errors.New("it has no certificate")
	if len(state.VerifiedChains) > 0 {
		var of identity.Identity
		if of, err = identity.Of(state.PeerCertificates[0]); err == nil {
			err = s.registry.add(secure, of, state.PeerCertificates[0].NotAfter)
		}
	}
	if err != nil {
		s.o.Logger.Debug("a connection of an agent is refused", "address", c.RemoteAddr().String(), "error", err)
		_ = c.Close() // nothing to report to
	}
}

// handedOver is a listener of connections that others have accepted.
type handedOver struct {
	address net.Addr
	conns   chan net.Conn
	open    chan struct{} // as many as are handed over and not closed
	done    chan struct{}
	closing sync.Once
}

func newHandedOver(address net.Addr) *handedOver {
	return &handedOver{address: address, conns: make(chan net.Conn), open: make(chan struct{}, maxHTTPConns), done: make(chan struct{})}
}

// hand hands a connection over, or closes it where there are too many.
func (h *handedOver) hand(c *tls.Conn) {
	select {
	case h.open <- struct{}{}:
	default:
		refuse(c.NetConn())
		return
	}
	select {
	case h.conns <- c:
	case <-h.done:
		<-h.open
		_ = c.NetConn().Close() // nothing to report to
	}
}

// connState counts those that have ended.
func (h *handedOver) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		<-h.open
	}
}

// Accept implements net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handedOver) Close() error {
	h.closing.Do(func() { close(h.done) })
	return nil
}

// Addr implements net.Listener.
func (h *handedOver) Addr() net.Addr { return h.address }
