package memberclient

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

const (
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	maxHeaderBytes   = 64 << 10
	stockWindow      = 256 << 10 // of a stream of net/http: what a server may send before it is read
	maxConns         = 1024      // to a server of HTTP/1.1: one for each watch
)

// The defaults of TransportOptions.
const (
	DefaultPingInterval = 3 * time.Second
	DefaultPingTimeout  = 3 * time.Second
)

// TransportOptions say how connections are made. Zero intervals mean the
// defaults of Options.
type TransportOptions struct {
	Network                   connection.Network
	Trusted                   bool // loopback addresses are allowed
	PingInterval, PingTimeout time.Duration
	Reader                    string                            // ID of this installation, for a server that is a federator; "" for all others
	Prolong                   func(time.Duration) time.Duration // timeouts of pings and writes of our own transport; may be nil
	OnDial                    func()                            // called at each new connection; may be nil
	OnRead                    func()                            // called whenever anything comes over one; may be nil

	// Stock sends everything by net/http: two goroutines and buffers a watch. Servers that
	// do not speak HTTP/2 are reached by its HTTP/1.1 anyway, a connection a watch, and so
	// are those that violate HTTP/2 thrice in ten minutes, floods aside: its HTTP/2 has
	// fewer limits, and a lock that a server can have it hold for good (a WINDOW_UPDATE
	// of a stream that overflows; Go 1.26).
	Stock       bool
	OnStock     func(why error) // called when a server is, from then on; may be nil
	OnViolation func(error)     // called at each violation of HTTP/2; may be nil; must not block
}

// NewHTTPClient returns a client for a checked configuration. Its connections are
// its own: they are shared with no other client and go away with
// CloseIdleConnections, those in use when they fall idle. It has no overall
// timeout; requests are bounded by their contexts.
func NewHTTPClient(cfg *rest.Config, o TransportOptions) (*http.Client, error) {
	if o.PingInterval == 0 {
		o.PingInterval = DefaultPingInterval
	}
	if o.PingTimeout == 0 {
		o.PingTimeout = DefaultPingTimeout
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	dialer := o.Network.Dialer()
	if o.Trusted {
		dialer = o.Network.LoopbackDialer()
	}
	// For HTTP/1.1 servers, which know no pings.
	dialer.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: o.PingInterval, Interval: max(o.PingTimeout/3, time.Second), Count: 3}
	t := &transport{conns: map[*trackedConn]struct{}{}, onRead: o.OnRead, reader: o.Reader}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if o.OnDial != nil {
			o.OnDial()
		}
		return t.track(c), nil
	}
	if cfg.ExecProvider != nil {
		// A plugin that gives another certificate ends the connections with the last.
		cfg = rest.CopyConfig(cfg)
		cfg.Dial = dial
		with, err := cfg.TransportConfig()
		if err != nil {
			return nil, err
		}
		dial = with.DialHolder.Dial
	}
	base := &http.Transport{
		Proxy:                  nil, // not the environment's either
		DialContext:            dial,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    4,
		MaxConnsPerHost:        maxConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  o.PingInterval,
			PingTimeout:      o.PingTimeout,
			WriteByteTimeout: o.PingInterval + o.PingTimeout,

			MaxReceiveBufferPerStream: stockWindow,
		},
	}
	if !o.Stock {
		base.ForceAttemptHTTP2, base.Protocols = false, new(http.Protocols)
		base.Protocols.SetHTTP1(true)
	}
	sender, err := newSwitching(base, &o)
	if err != nil {
		return nil, err
	}
	t.base = sender
	if t.next, err = rest.HTTPWrappersForConfig(cfg, sentMarker{sender}); err != nil {
		return nil, err
	}
	if cfg.ExecProvider != nil {
		t.next = pluginErrorMarker{t.next}
	}
	return &http.Client{Transport: t}, nil
}

// NewHubHTTPClient returns a client for the hub, by the operator's own
// configuration, which the rules for kubeconfigs of a hub do not restrict, and what
// ends its connections.
func NewHubHTTPClient(cfg *rest.Config) (client *http.Client, end func(), err error) {
	t := &transport{hub: true, conns: map[*trackedConn]struct{}{}}
	own := rest.CopyConfig(cfg)
	dial := own.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // client-go's own
	}
	own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return t.track(c), nil
	}
	if t.base, err = rest.TransportFor(own); err != nil {
		return nil, nil, err
	}
	t.next = t.base
	return &http.Client{Transport: t}, t.CloseIdleConnections, nil
}

// transport refuses redirects, and lets its connections go once it is retired.
// It is the outermost round tripper, as the ones that add credentials do not
// pass CloseIdleConnections on.
type transport struct {
	base http.RoundTripper // whose connections they are
	next http.RoundTripper
	hub  bool // the operator's own, whose bodies are not bounded

	onRead func() // may be nil
	reader string // as in TransportOptions

	mu       sync.Mutex
	retired  bool
	closed   bool                      // connections end at once
	inFlight int                       // requests under way, bodies not closed included
	conns    map[*trackedConn]struct{} // open, where it is we who dial
}

// RoundTrip sends a request. An answer that redirects is an error that is a
// *Refusal.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.inFlight++
	t.mu.Unlock()
	if t.reader != "" {
		r = r.Clone(r.Context())
		r.Header.Set(federation.ReaderHeader, t.reader)
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.requestDone()
		return nil, err
	}
	if contentType, ok := r.Context().Value(streamKey{}).(*string); ok {
		*contentType = resp.Header.Get("Content-Type")
	}
	if scope, ok := r.Context().Value(scopeKey{}).(*string); ok {
		*scope = resp.Header.Get(federation.ScopeHeader)
	}
	resp.Body = t.bodyOf(r, resp)
	if c := resp.StatusCode; c >= 300 && c < 400 && c != http.StatusNotModified {
		_ = resp.Body.Close() // nothing of it is read
		where := "nowhere"
		if u, err := resp.Location(); err == nil {
			where = u.Scheme + "://" + u.Host
		}
		return nil, connection.Refuse(connection.Redirect, "the server answered %d, a redirect to %s", c, message.Clip(where))
	}
	return resp, nil
}

// requestDone ends a request.
func (t *transport) requestDone() {
	t.mu.Lock()
	t.inFlight--
	t.mu.Unlock()
	t.closeUnused()
}

// CloseIdleConnections closes what is idle, and has what is in use closed as
// soon as it is idle.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	t.retired = true
	t.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(t.base)
	t.closeUnused()
}

// closeUnused closes the connections of a retired transport. While a request is
// under way it leaves to the base to know which ones are idle; the base, for
// its part, does not know yet of a request that has just been abandoned.
func (t *transport) closeUnused() {
	t.mu.Lock()
	retired := t.retired
	var unused []*trackedConn
	if retired && t.inFlight == 0 {
		unused = slices.Collect(maps.Keys(t.conns))
	}
	t.mu.Unlock()
	if !retired {
		return
	}
	for _, c := range unused {
		_ = c.Close() // nothing to report to
	}
	utilnet.CloseIdleConnectionsFor(t.base)
}

// closeAll closes all connections, and those that are dialled from now on.
func (t *transport) closeAll() {
	t.mu.Lock()
	t.retired, t.closed = true, true
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing to report to
	}
	if s, is := t.base.(*switching); is {
		s.close()
	}
}

// trackedConn is a connection that its transport knows of while it is open.
type trackedConn struct {
	net.Conn
	transport *transport
}

func (t *transport) track(c net.Conn) *trackedConn {
	out := &trackedConn{c, t}
	t.mu.Lock()
	t.conns[out] = struct{}{}
	closed := t.closed
	t.mu.Unlock()
	if closed {
		_ = out.Close() // nothing to report to
	}
	t.closeUnused() // the request that it was dialled for may be over
	return out
}

// Read notes that the server lives: answers to pings are read, too.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.transport.onRead != nil {
		c.transport.onRead()
	}
	return n, err
}

func (c *trackedConn) Close() error {
	c.transport.mu.Lock()
	delete(c.transport.conns, c)
	c.transport.mu.Unlock()
	return c.Conn.Close()
}
