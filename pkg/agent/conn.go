package agent

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxStreams  = 4096 // of a connection
	maxHeader   = 64 << 10
	streamBytes = 256 << 10        // of a request that may come before it is read
	drainTime   = 75 * time.Minute // for what is under way on a connection that is replaced; watches last for 70 at most
)

// conn is a connection that the agent has dialled and serves.
type conn struct {
	net.Conn    // of TLS, which net/http must not see: it would look at ALPN
	raw         net.Conn
	link        *link
	began       time.Time
	credentials *credentials
	retiring    chan struct{} // closed when it is replaced
	handlers    handlers

	used    sync.Once
	closing sync.Once
	closed  chan struct{}
}

func newConn(c *tls.Conn, l *link, by *credentials) *conn {
	return &conn{Conn: c, raw: c.NetConn(), link: l, began: time.Now(), credentials: by, retiring: make(chan struct{}), closed: make(chan struct{}), handlers: handlers{over: make(chan struct{})}}
}

// serve serves HTTP/2 until the connection ends.
func (c *conn) serve(ctx context.Context) {
	o := &c.link.agent.o
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // what is below is secure already
	server := &http.Server{
		Handler: http.HandlerFunc(c.handle), Protocols: protocols, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBytes,
			SendPingTimeout: o.PingInterval, PingTimeout: o.PingTimeout, WriteByteTimeout: o.PingInterval + o.PingTimeout,
		},
		ErrorLog: slog.NewLogLogger(c.link.log.Handler(), slog.LevelDebug),
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-c.closed:
		case <-ctx.Done():
			server.Close()
		case <-c.retiring:
			limited, cancel := context.WithTimeout(ctx, drainTime)
			defer cancel()
			_ = server.Shutdown(limited) // what takes longer is ended
			server.Close()
		}
	})
	_ = server.Serve(&single{conn: c, done: make(chan struct{})}) // it ends with the connection, or when that is replaced
	<-c.closed
	ending.Wait()
	c.handlers.end()
}

func (c *conn) handle(w http.ResponseWriter, r *http.Request) {
	if !c.handlers.enter() {
		panic(http.ErrAbortHandler)
	}
	defer c.handlers.leave()
	c.link.agent.proxy.ServeHTTP(w, r)
}

// Read implements net.Conn. The first that comes is from federator using the connection.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.used.Do(func() { c.link.use(c) })
	}
	return n, err
}

// Close closes the socket below TLS: nobody is waited for.
func (c *conn) Close() error {
	var err error
	c.closing.Do(func() {
		err = c.raw.Close()
		c.link.gone(c)
		close(c.closed)
	})
	return err
}

// single is a listener of one connection.
type single struct {
	conn     *conn
	accepted atomic.Bool
	closing  sync.Once
	done     chan struct{}
}

// Accept implements net.Listener. The second call lasts as long as the connection.
func (s *single) Accept() (net.Conn, error) {
	if !s.accepted.Swap(true) {
		return s.conn, nil
	}
	select {
	case <-s.conn.closed:
	case <-s.done:
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener. The connection stays open.
func (s *single) Close() error {
	s.closing.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

// handlers counts the requests that are handled.
type handlers struct {
	mu    sync.Mutex
	n     int
	ended bool
	over  chan struct{}
}

func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.n++
	}
	return !h.ended
}

func (h *handlers) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n--; h.ended && h.n == 0 {
		close(h.over)
	}
}

// end lets no more in, and waits for those that are.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	idle := h.n == 0
	h.mu.Unlock()
	if !idle {
		<-h.over
	}
}
