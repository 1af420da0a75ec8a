package clusterinformers

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
	maxHeaderBytes   = 64 << 10
)

// transportOptions say how connections are made. Zero intervals mean the
// defaults of Options.
type transportOptions struct {
	Network                   Network
	Trusted                   bool // loopback addresses are allowed
	PingInterval, PingTimeout time.Duration
	Dialed                    func() // called at each new connection; may be nil
	Heard                     func() // called whenever anything comes over one; may be nil
}

// newTransport returns a client for a judged configuration. Its connections are
// its own: they are shared with no other client and go away with
// CloseIdleConnections, those in use when they fall idle. It has no overall
// timeout; requests are bounded by their contexts.
func newTransport(cfg *rest.Config, o transportOptions) (*http.Client, error) {
	if o.PingInterval == 0 {
		o.PingInterval = defaultPingInterval
	}
	if o.PingTimeout == 0 {
		o.PingTimeout = defaultPingTimeout
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	dialer := o.Network.dialer(o.Trusted)
	// For HTTP/1.1 servers, which know no pings.
	dialer.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: o.PingInterval, Interval: max(o.PingTimeout/3, time.Second), Count: 3}
	t := &transport{conns: map[*conntrack]struct{}{}, heard: o.Heard}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if o.Dialed != nil {
			o.Dialed()
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
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  o.PingInterval,
			PingTimeout:      o.PingTimeout,
			WriteByteTimeout: o.PingInterval + o.PingTimeout,
		},
	}
	t.base = base
	if t.next, err = rest.HTTPWrappersForConfig(cfg, sent{base}); err != nil {
		return nil, err
	}
	if cfg.ExecProvider != nil {
		t.next = pluginErrors{t.next}
	}
	return &http.Client{Transport: t}, nil
}

// hubTransport returns a client for the hub, by the operator's own
// configuration, which law 9 does not judge, and what ends its connections.
func hubTransport(cfg *rest.Config) (client *http.Client, end func(), err error) {
	t := &transport{hub: true, conns: map[*conntrack]struct{}{}}
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

	heard func() // may be nil

	mu      sync.Mutex
	retired bool
	under   int                     // requests under way, bodies not closed included
	conns   map[*conntrack]struct{} // open, where it is we who dial
}

// RoundTrip sends a request. An answer that redirects is an error that is a
// *Refusal.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	t.under++
	t.mu.Unlock()
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.over()
		return nil, err
	}
	if contentType, ok := r.Context().Value(unbounded{}).(*string); ok {
		*contentType = resp.Header.Get("Content-Type")
	}
	resp.Body = &body{ReadCloser: resp.Body, over: sync.OnceFunc(t.over), left: t.bodyLimit(r, resp)}
	if c := resp.StatusCode; c >= 300 && c < 400 && c != http.StatusNotModified {
		_ = resp.Body.Close() // nothing of it is read
		where := "nowhere"
		if u, err := resp.Location(); err == nil {
			where = u.Scheme + "://" + u.Host
		}
		return nil, refuse(Redirect, "the server answered %d, a redirect to %s", c, clip(where))
	}
	return resp, nil
}

// over ends a request.
func (t *transport) over() {
	t.mu.Lock()
	t.under--
	t.mu.Unlock()
	t.release()
}

// CloseIdleConnections closes what is idle, and has what is in use closed as
// soon as it is idle.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	t.retired = true
	t.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(t.base)
	t.release()
}

// release closes the connections of a retired transport. While a request is
// under way it leaves to the base to know which ones are idle; the base, for
// its part, does not know yet of a request that has just been given up.
func (t *transport) release() {
	t.mu.Lock()
	retired := t.retired
	var unused []*conntrack
	if retired && t.under == 0 {
		unused = slices.Collect(maps.Keys(t.conns))
	}
	t.mu.Unlock()
	if !retired {
		return
	}
	for _, c := range unused {
		_ = c.Close() // there is nobody to tell
	}
	utilnet.CloseIdleConnectionsFor(t.base)
}

// conntrack is a connection that its transport knows of while it is open.
type conntrack struct {
	net.Conn
	transport *transport
}

func (t *transport) track(c net.Conn) *conntrack {
	out := &conntrack{c, t}
	t.mu.Lock()
	t.conns[out] = struct{}{}
	t.mu.Unlock()
	t.release() // the request that it was dialled for may be over
	return out
}

// Read notes that the server lives: answers to pings are read, too.
func (c *conntrack) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.transport.heard != nil {
		c.transport.heard()
	}
	return n, err
}

func (c *conntrack) Close() error {
	c.transport.mu.Lock()
	delete(c.transport.conns, c)
	c.transport.mu.Unlock()
	return c.Conn.Close()
}

// Bodies are read whole by client-go, but for those of lists and watches, which
// count their bytes themselves.
const (
	maxBody      = 16 << 20
	maxErrorBody = 64 << 10
	unlimited    = -1
)

// errBodyTooLarge is the error of reading a body beyond its limit.
var errBodyTooLarge = errors.New("the response is too large")

// unbounded marks the requests whose bodies count for themselves. Its value, a *string,
// takes the Content-Type of the answer, which client-go does not return with a stream.
type unbounded struct{}

// bodyLimit is how much of a response may be read.
func (t *transport) bodyLimit(r *http.Request, resp *http.Response) int64 {
	switch {
	case t.hub:
		return unlimited
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return maxErrorBody
	case r.Context().Value(unbounded{}) != nil:
		return unlimited
	}
	return maxBody
}

// body is what is left of a response.
type body struct {
	io.ReadCloser
	over func()
	left int64 // that may be read; unlimited: all
}

// Read implements io.Reader. A body that goes on beyond its limit is an error
// after it.
func (b *body) Read(p []byte) (int, error) {
	if b.left == unlimited || len(p) == 0 {
		return b.ReadCloser.Read(p)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more, to know whether there is more
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) <= b.left {
		b.left -= int64(n)
		return n, err
	}
	n, b.left = int(b.left), 0
	return n, errBodyTooLarge
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.over()
	return err
}

// asRefusal returns the refusal that an error of a request wraps, or nil.
func asRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// addressJudge judges the addresses that are dialled. It sees them resolved: what a
// name resolved to earlier does not count.
type addressJudge struct {
	network Network
	trusted bool
}

func (j addressJudge) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse(ForbiddenAddress, "%s %q is not an address and port", network, clip(address))
	}
	if refusal := j.judge(at.Addr()); refusal != nil {
		return refusal
	}
	return nil
}

// judge returns why an address may not be dialled, or nil.
func (j addressJudge) judge(a netip.Addr) *Refusal {
	a = a.WithZone("").Unmap()
	inner := embedded(a)
	for _, p := range j.network.Allow {
		if p.Contains(a) || inner.IsValid() && p.Contains(inner) {
			return nil
		}
	}
	for _, x := range []netip.Addr{a, inner} {
		if !x.IsValid() {
			continue
		}
		if what := special(x); what != "" && (!j.trusted || !x.IsLoopback()) {
			return refuse(ForbiddenAddress, "%s is %s, which is not dialled unless network.allow of the configuration lists it, as %s", a, what, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return nil
}

// normalize returns the network with IPv4-mapped prefixes as IPv4, in which
// form addresses are compared.
func (n Network) normalize() Network {
	out := Network{Allow: make([]netip.Prefix, 0, len(n.Allow))}
	for _, p := range n.Allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out.Allow = append(out.Allow, p)
	}
	return out
}

// metadata are the addresses of cloud services that hand credentials to
// whoever asks from inside.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"), // most
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS, by IPv6: metadata, pod identity
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud, by IPv6
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's host
}

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux takes 0.0.0.0 for itself

// special says what an address is that no member should have, "" for any
// other.
func special(a netip.Addr) string {
	for _, p := range metadata {
		if p.Contains(a) {
			return "a cloud's metadata service"
		}
	}
	switch {
	case a.IsLoopback():
		return "a loopback address"
	case a.IsUnspecified(), thisNetwork.Contains(a):
		return "an unspecified address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast or broadcast address"
	}
	return ""
}

// The ranges of IPv6 whose addresses lead to an IPv4 address inside them, with
// the byte at which it stands.
var carriers = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64, RFC 6052
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4, RFC 3056
}

// embedded returns the IPv4 address that an IPv6 address leads to, or the zero
// Addr.
func embedded(a netip.Addr) netip.Addr {
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return netip.Addr{}
	}
	for _, c := range carriers {
		if c.prefix.Contains(a) {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[c.at : c.at+4]))
		}
	}
	return netip.Addr{}
}
