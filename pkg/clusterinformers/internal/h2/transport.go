package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults and limits.
const (
	defaultPing    = 3 * time.Second
	defaultIdle    = 90 * time.Second
	defaultConns   = 16
	defaultWindow  = 1 << 20 // of a stream
	dialTimeout    = 30 * time.Second
	helloTimeout   = 5 * time.Second  // of TLS
	fallbackTime   = 10 * time.Minute // until a host is asked for HTTP/2 again
	maxAttempts    = 5                // to send a request that the server did not begin to process
	maxDraining    = 4                // connections of a host
	reserved       = 4                // streams of a connection, for short requests
	usualStreams   = 100              // that servers allow a connection; it has one until they have said
	maxStreams     = 1000             // of a connection, whatever the server allows
	minWindow      = 64 << 10         // of a stream: what our SETTINGS say
	connWindow     = 1 << 20          // of a connection
	maxHeaderBytes = 64 << 10
	maxTableBytes  = 4 << 10
	maxFrameBytes  = 16 << 10
	maxReset       = 256 // streams that are remembered to have been reset
	maxSettings    = 100 // of a frame
)

// Options say how a transport connects. Zero values mean the defaults.
type Options struct {
	// Dial opens a connection below TLS.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS is copied; sessions are not resumed, and protocols are set here.
	TLS *tls.Config
	// Secure says that what Dial opens is secure already and speaks HTTP/2: no TLS is begun on it, and TLS
	// is not used. Close of such a connection must not wait for the peer.
	Secure bool
	// PingInterval is how long nothing may come over a connection with streams before it
	// is asked for an answer, which must come within PingTimeout. 3s each by default. A
	// write may take as long as both. While something comes over another connection to the
	// host it is asked at a fifth of the rate.
	PingInterval, PingTimeout time.Duration
	// Prolong returns how long PingTimeout, or the time for a write, is at the moment: longer
	// where this process is late itself. nil: as long as it is.
	Prolong func(time.Duration) time.Duration
	// IdleTimeout is how long a connection without streams is kept. 90s by default.
	IdleTimeout time.Duration
	// MaxConns is how many connections a host may have, those being drained aside. 16 by
	// default. Requests wait for a stream beyond them.
	MaxConns int
	// Fallback takes requests to hosts that do not speak HTTP/2, and plain http. Without
	// one, they fail.
	Fallback http.RoundTripper
	// OnFallback is called when a dial finds that a host does not speak HTTP/2; may be nil.
	OnFallback func(*ALPNError)
	// OnProtocolError is called at each violation; may be nil. It must not block.
	OnProtocolError func(*ProtocolError)
}

// RequestOptions are what a request says of itself by its context.
type RequestOptions struct {
	Watch  bool                    // it lasts: it takes no stream that is reserved for short requests
	Window int                     // bytes that may come before they are read; at least 64 KiB; 1 MiB by default
	Charge func(bytes int64) error // called with what is held of the body, negative when released; an error resets the stream. It must not block

	// Detached requests end with their context until the headers of their responses come, and
	// from then on when their bodies are closed: a context costs more than the stream.
	Detached bool
}

type optionsKey struct{}

// WithRequestOptions returns a context for one request. Without, a request is a watch if
// its query says so.
func WithRequestOptions(ctx context.Context, o RequestOptions) context.Context {
	return context.WithValue(ctx, optionsKey{}, o)
}

// ChargeOf returns the Charge of a request's options, which may be nil: it is of whatever is held of the body, also by
// who decodes it.
func ChargeOf(ctx context.Context) func(bytes int64) error {
	o, _ := ctx.Value(optionsKey{}).(RequestOptions) //nolint:errcheck // none is none
	return o.Charge
}

func requestOptions(req *http.Request) RequestOptions {
	o, ok := req.Context().Value(optionsKey{}).(RequestOptions)
	if !ok {
		v := req.URL.Query().Get("watch")
		o.Watch = v != "" && v != "0" && v != "false"
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	o.Window = min(max(o.Window, minWindow), maxWindow)
	return o
}

// Transport is an http.RoundTripper over HTTP/2. The bodies of its responses are
// stream.Streams.
type Transport struct {
	o       Options
	began   time.Time
	wg      sync.WaitGroup // dials, and the goroutines and timers of connections
	waiting atomic.Int32   // requests that wait for a stream

	mu     sync.Mutex // taken before a connection's
	closed bool
	hosts  map[string]*host
	open   map[*conn]struct{} // whose sockets are
}

// New returns a transport.
func New(o Options) (*Transport, error) {
	if o.Dial == nil {
		return nil, errors.New("h2: no function to dial")
	}
	for _, d := range []*time.Duration{&o.PingInterval, &o.PingTimeout} {
		if *d == 0 {
			*d = defaultPing
		}
	}
	if o.Prolong == nil {
		o.Prolong = func(d time.Duration) time.Duration { return d }
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdle
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultConns
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	o.TLS = o.TLS.Clone()
	o.TLS.NextProtos = []string{"h2", "http/1.1"} // a server that knows only the latter can say so
	o.TLS.ClientSessionCache, o.TLS.SessionTicketsDisabled = nil, true
	return &Transport{o: o, began: time.Now(), hosts: map[string]*host{}, open: map[*conn]struct{}{}}, nil
}

// now is the time since the transport began.
func (t *Transport) now() time.Duration { return time.Since(t.began) }

// RoundTrip implements http.RoundTripper. It returns at the headers; from then on the
// request holds no goroutine. A request body's Read should not block; what is left of it
// when the headers come is not sent.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body := req.Body
	if body == nil {
		body = http.NoBody
	}
	if req.URL.Scheme != "https" {
		return t.fallback(req, fmt.Errorf("h2: scheme %q is not supported", req.URL.Scheme))
	}
	head, err := newRequestHead(req)
	if err != nil {
		body.Close()
		return nil, err
	}
	o := requestOptions(req)
	var avoid *conn
	for attempt := 1; ; attempt++ {
		c, err := t.acquire(req.Context(), addressOf(req), o.Watch, avoid)
		if alpn := (*ALPNError)(nil); errors.As(err, &alpn) && t.o.Fallback != nil {
			req = req.Clone(req.Context())
			req.Body = body
			return t.o.Fallback.RoundTrip(req)
		}
		if err != nil {
			body.Close()
			return nil, err
		}
		resp, err := c.roundTrip(req, head, body, o)
		body.Close()
		var again *unprocessedError
		if err == nil || !errors.As(err, &again) || attempt == maxAttempts || req.Context().Err() != nil {
			return resp, err
		}
		if body != http.NoBody {
			if req.GetBody == nil {
				return nil, err
			}
			if body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
		avoid = c
	}
}

// fallback sends a request by another transport, if there is one.
func (t *Transport) fallback(req *http.Request, why error) (*http.Response, error) {
	if t.o.Fallback != nil {
		return t.o.Fallback.RoundTrip(req)
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, why
}

// addressOf is where a request is sent to: host and port.
func addressOf(req *http.Request) string {
	host := req.URL.Host
	if req.URL.Port() == "" {
		host = net.JoinHostPort(strings.Trim(req.URL.Hostname(), "[]"), "443")
	}
	return host
}

// CloseIdleConnections closes the connections without streams, and the others once they
// have none.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	var idle []*conn
	for _, h := range t.hosts {
		for d := range h.dials {
			d.retired = true
		}
		for _, c := range append(h.conns[:len(h.conns):len(h.conns)], h.draining...) {
			if c.retire() {
				idle = append(idle, c)
			}
		}
	}
	t.mu.Unlock()
	for _, c := range idle {
		c.fail(errIdle)
	}
	if f, ok := t.o.Fallback.(interface{ CloseIdleConnections() }); ok {
		f.CloseIdleConnections()
	}
}

// Close ends everything at once: it closes sockets below TLS, ends requests and bodies
// with ErrClosed, and returns when no goroutine is left. It is not to be called by what
// Notify has set. Requests of the fallback are its own.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	var open []*conn
	for c := range t.open {
		open = append(open, c)
	}
	var waiters []*waiter
	for _, h := range t.hosts {
		for d := range h.dials {
			d.cancel()
		}
		waiters = append(waiters, h.waiters...)
		h.waiters = nil
	}
	t.waiting.Add(-int32(len(waiters)))
	t.mu.Unlock()
	for _, w := range waiters {
		w.got <- grant{err: ErrClosed}
	}
	for _, c := range open {
		c.fail(ErrClosed)
		c.shut()
	}
	t.wg.Wait()
	if f, ok := t.o.Fallback.(interface{ CloseIdleConnections() }); ok {
		f.CloseIdleConnections()
	}
}

// Stats say what a transport has open.
type Stats struct {
	Conns    int // that take streams
	Draining int // that do not
	Streams  int // those that were reset and still count included
	Waiting  int // requests that wait for a stream
}

// Stats returns what the transport has open.
func (t *Transport) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Waiting: int(t.waiting.Load())}
	for _, h := range t.hosts {
		s.Conns += len(h.conns)
		s.Draining += len(h.draining)
		for _, c := range append(h.conns[:len(h.conns):len(h.conns)], h.draining...) {
			s.Streams += c.used()
		}
	}
	return s
}
