package hubside

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// Bounds of connections before it is known whose they are, and of those that send a request. As each sends one and is
// closed, they bound the requests, too. More are refused at once. Who has no certificate has no part in what agents
// renew theirs by. Behind something that hides addresses all have one: so an address may have half of what all may.
const (
	handshakeTimeout = 5 * time.Second
	maxHandshakes    = 256
	maxOfAgents      = 128
	maxOfAgent       = 8 // of one Member: an agent sends one request at a time to each process
	maxOfStrangers   = 64
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
		from := origin(c.RemoteAddr())
		if !s.handshakes.take(from) {
			s.metrics.refused.WithLabelValues(refusedBusy).Inc()
			refuse(c) // it comes again later
			continue
		}
		shaking.Go(func() {
			defer func() {
				s.handshakes.give(from)
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
		s.metrics.refused.WithLabelValues(refusedHandshake).Inc()
		s.o.Logger.Debug("a handshake with an agent failed", "address", c.RemoteAddr().String(), "error", err)
		_ = c.Close() // nothing to report to
		return
	}
	state := secure.ConnectionState()
	of, err := s.peer(&state)
	if state.NegotiatedProtocol != joining.Protocol {
		if err == nil && s.registry.known(of.Identity) {
			s.http.hand(secure, s.ofAgents, of.UID)
		} else {
			s.http.hand(secure, s.ofStrangers, origin(c.RemoteAddr()))
		}
		return
	}
	if err == nil {
		expires := state.PeerCertificates[0].NotAfter
		if most := time.Now().Add(s.o.CertificateLife); most.Before(expires) { // it is not one that federator has made
			expires = most
		}
		err = s.registry.add(secure, of, expires)
	}
	if err != nil {
		s.metrics.refused.WithLabelValues(refusedIdentity).Inc()
		s.o.Logger.Debug("a connection of an agent is refused", "address", c.RemoteAddr().String(), "error", err)
		_ = c.Close() // nothing to report to
	}
}
