package sinks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"federator.dev/federator/internal/clip"
)

// session is one connection to a server. It is not connected again.
type session struct {
	conn   *nats.Conn
	raw    net.Conn
	stream jetstream.JetStream
	failed chan error    // the first error that the server sent apart from an acknowledgement
	closed chan struct{} // closed after the connection
}

var errTimeout = errors.New("no acknowledgement in time")

func (n *NATS) connect(ctx context.Context) (*session, error) {
	s := &session{failed: make(chan error, 1), closed: make(chan struct{})}
	d := &dialer{ctx: ctx, dial: n.dial, timeout: n.timeout}
	options := append([]nats.Option{
		nats.SetCustomDialer(d),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case s.failed <- err:
			default:
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(s.closed) }),
	}, n.options...)
	conn, err := nats.Connect(n.servers, options...)
	d.stop()
	if err != nil {
		return nil, d.explain(err)
	}
	s.conn, s.raw = conn, d.conn
	if s.stream, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(2*maxInFlight)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close closes the connection and waits until the library says that it is.
func (s *session) close() {
	s.conn.Close()
	<-s.closed
}

// interruptible closes the connection with the context, until stop is called: the library's writes have none.
func (s *session) interruptible(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { s.raw.Close() })
}

// wait waits for an acknowledgement.
func (s *session) wait(ctx context.Context, ack jetstream.PubAckFuture, timeout <-chan time.Time) error {
	select {
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	case err := <-s.failed:
		return err
	case <-s.closed:
		return nats.ErrConnectionClosed
	case <-timeout:
		return errTimeout
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// explain returns an error, or its cause where that is the end of the context or of the connection.
func (s *session) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if last := s.conn.LastError(); errors.Is(err, nats.ErrConnectionClosed) && last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// maxError is how many bytes of an error are shown: servers write some of it.
const maxError = 1024

// boundedError is an error with a text that is bounded, on one line.
type boundedError struct {
	error
	text string
}

func (e *boundedError) Error() string { return e.text }
func (e *boundedError) Unwrap() error { return e.error }

func bounded(err error) error {
	text := clip.Line(err.Error(), maxError)
	if text == err.Error() {
		return err
	}
	return &boundedError{err, text}
}

// dialer dials for one connect of the library, which has no context: the dialer brings it.
type dialer struct {
	ctx     context.Context
	dial    Dial
	timeout time.Duration

	mu    sync.Mutex
	conn  net.Conn // the newest
	errs  []error
	stops []func() bool
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
	defer cancel()
	conn, err := d.dial(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.errs = append(d.errs, err)
		return nil, err
	}
	d.conn = conn
	d.stops = append(d.stops, context.AfterFunc(d.ctx, func() { conn.Close() }))
	return conn, nil
}

// stop lets the connections be, whatever comes of the context.
func (d *dialer) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
}

// explain returns why there is no connection. The library drops errors of dialing.
func (d *dialer) explain(err error) error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.errs) > 0 && (errors.Is(err, nats.ErrNoServers) || strings.Contains(err.Error(), d.errs[len(d.errs)-1].Error())) {
		return errors.Join(d.errs...)
	}
	return err
}
