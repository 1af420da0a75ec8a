package h2

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"
	"time"
)

// host is what a transport knows of a host. Its transport's lock guards it.
type host struct {
	address  string
	heard    atomic.Int64 // when the last frame came over any connection, as of now
	conns    []*conn      // that take streams, oldest first
	draining []*conn      // oldest first
	dials    map[*dial]struct{}
	waiters  []*waiter // in the order that they came
	stock    time.Time // until when the host counts as one that does not speak HTTP/2
	alpn     *ALPNError
}

// dial is a connection that is being made.
type dial struct {
	cancel  context.CancelFunc
	retired bool // it closes as soon as it is idle
}

// waiter is a request that waits for a stream.
type waiter struct {
	ctx   context.Context // the request's: its values are for dials
	watch bool
	avoid *conn // has just refused it; may be nil
	got   chan grant
}

// grant is the right to one stream of a connection, or why there is none.
type grant struct {
	c   *conn
	err error
}

// acquire returns a connection on which a stream is reserved.
func (t *Transport) acquire(ctx context.Context, address string, watch bool, avoid *conn) (*conn, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, ErrClosed
	}
	h := t.hosts[address]
	if h == nil {
		h = &host{address: address, dials: map[*dial]struct{}{}}
		t.hosts[address] = h
	}
	if h.alpn != nil && time.Now().Before(h.stock) {
		t.mu.Unlock()
		return nil, h.alpn
	}
	w := &waiter{ctx: ctx, watch: watch, avoid: avoid, got: make(chan grant, 1)}
	if c := t.reserveLocked(h, w); c != nil {
		t.mu.Unlock()
		return c, nil
	}
	h.waiters = append(h.waiters, w)
	t.waiting.Add(1)
	t.serveLocked(h)
	t.mu.Unlock()
	select {
	case g := <-w.got:
		return g.c, g.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	if i := slices.Index(h.waiters, w); i >= 0 {
		h.waiters = slices.Delete(h.waiters, i, i+1)
		t.waiting.Add(-1)
	}
	t.mu.Unlock()
	select {
	case g := <-w.got:
		if g.c != nil {
			g.c.release()
		}
	default:
	}
	return nil, ctx.Err()
}

// reserveLocked reserves a stream: of the first connection that has one or, for a watch, of the
// one with the fewest. Connections that share the watches are silent, and asked whether they
// live, less often than one that has what the others had no room for.
func (t *Transport) reserveLocked(h *host, w *waiter) *conn {
	var best *conn
	fewest := 0
	for _, c := range h.conns {
		n, free := c.room(w.watch)
		if !free || c == w.avoid && len(h.conns) < t.o.MaxConns {
			continue
		}
		if best == nil || n < fewest {
			best, fewest = c, n
		}
		if !w.watch {
			break
		}
	}
	if best == nil || !best.reserve(w.watch) { // it may have gone away since
		return nil
	}
	return best
}

// perConn is how many waiters a dial is made for.
const perConn = usualStreams - reserved

// serveLocked gives waiters what is free and dials for the rest.
func (t *Transport) serveLocked(h *host) {
	h.waiters = slices.DeleteFunc(h.waiters, func(w *waiter) bool {
		c := t.reserveLocked(h, w)
		if c != nil {
			t.waiting.Add(-1)
			w.got <- grant{c: c}
		}
		return c != nil
	})
	begun := len(h.dials)
	for _, c := range h.conns {
		if c.fresh() {
			begun++
		}
	}
	for ; begun < (len(h.waiters)+perConn-1)/perConn && len(h.dials)+len(h.conns) < t.o.MaxConns && !t.closed; begun++ {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.waiters[0].ctx), dialTimeout)
		d := &dial{cancel: cancel}
		h.dials[d] = struct{}{}
		t.wg.Go(func() {
			defer cancel()
			c, err := t.dial(ctx, h.address)
			t.dialled(h, d, c, err)
		})
	}
}

// dialled takes a dial's outcome.
func (t *Transport) dialled(h *host, d *dial, c *conn, err error) {
	alpn, is := err.(*ALPNError) //nolint:errorlint // it is made here
	if is && t.o.OnFallback != nil {
		t.o.OnFallback(alpn)
	}
	t.mu.Lock()
	delete(h.dials, d)
	switch {
	case t.closed:
		t.mu.Unlock()
		if c != nil {
			_ = c.raw.Close() // nothing was sent
		}
		return
	case c != nil:
		c.others = &h.heard
		t.open[c] = struct{}{}
		h.conns = append(h.conns, c)
		c.start()
	case is:
		h.alpn, h.stock = alpn, time.Now().Add(fallbackTime)
		t.refuseLocked(h, len(h.waiters), err)
	default:
		t.refuseLocked(h, perConn, err)
	}
	t.serveLocked(h)
	retire := c != nil && d.retired && c.retire()
	t.mu.Unlock()
	if retire {
		c.fail(errIdle)
	}
}

// refuseLocked tells up to n waiters why there is no stream.
func (t *Transport) refuseLocked(h *host, n int, err error) {
	n = min(n, len(h.waiters))
	for _, w := range h.waiters[:n] {
		w.got <- grant{err: err}
	}
	t.waiting.Add(-int32(n))
	h.waiters = slices.Delete(h.waiters, 0, n)
}

// dial makes a connection.
func (t *Transport) dial(ctx context.Context, address string) (*conn, error) {
	raw, err := t.o.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if t.o.Secure {
		return newConn(t, address, raw, raw, nil), nil
	}
	config := t.o.TLS
	if config.ServerName == "" {
		config = config.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			_ = raw.Close() // nothing was sent
			return nil, err
		}
	}
	secure := tls.Client(raw, config)
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	if err := secure.HandshakeContext(hello); err != nil {
		_ = raw.Close() // the handshake's error says more
		return nil, err
	}
	state := secure.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		_ = raw.Close() // below TLS: nobody is waited for
		return nil, &ALPNError{address, state.NegotiatedProtocol}
	}
	return newConn(t, address, raw, secure, &state), nil
}

// freed hands over streams that have become free.
func (t *Transport) freed(c *conn) {
	if t.waiting.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serveLocked(t.hosts[c.address])
}

// drain has a connection take no more streams. It returns the one that is to be closed
// for it.
func (t *Transport) drain(c *conn) (oldest *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[c.address]
	i := slices.Index(h.conns, c)
	if i < 0 {
		return nil
	}
	h.conns = slices.Delete(h.conns, i, i+1)
	h.draining = append(h.draining, c)
	t.serveLocked(h)
	if len(h.draining) > maxDraining {
		return h.draining[0]
	}
	return nil
}

// remove forgets a connection that has failed. Before the server's settings it is a dial
// that has: those that wait for it are told.
func (t *Transport) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[c.address]
	if err := c.failedEarly(); err != nil {
		t.refuseLocked(h, perConn, err)
	}
	is := func(other *conn) bool { return other == c }
	h.conns, h.draining = slices.DeleteFunc(h.conns, is), slices.DeleteFunc(h.draining, is)
	t.serveLocked(h)
}
