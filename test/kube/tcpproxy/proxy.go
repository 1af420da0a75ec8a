package tcpproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// State says what happens to connections.
type State int

const (
	// Pass forwards.
	Pass State = iota
	// Cut closes what is open and refuses what comes.
	Cut
	// BlackHole accepts and keeps connections but forwards nothing, not even
	// that one side has closed: to both sides the network looks dead.
	BlackHole
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Pass:
		return "Pass"
	case Cut:
		return "Cut"
	case BlackHole:
		return "BlackHole"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Mode is how a proxy treats its connections; the zero Mode is a plain proxy.
type Mode struct {
	State State
	// Latency is added in each direction.
	Latency time.Duration
	// BytesPerSecond bounds each direction, all connections together;
	// 0 means no bound.
	BytesPerSecond int
}

func (m Mode) validate() error {
	if m.State < Pass || m.State > BlackHole || m.Latency < 0 || m.BytesPerSecond < 0 {
		return fmt.Errorf("invalid mode %+v", m)
	}
	return nil
}

// Stats counts what went through since Listen.
type Stats struct {
	Accepted int64 // connections accepted
	Open     int64 // connections open now
	Sent     int64 // bytes written to the target
	Received int64 // bytes written to clients
}

// Proxy forwards connections to one target.
type Proxy struct {
	addr string
	stop func() bool // ends the watch on Listen's context
	done sync.WaitGroup

	accepted, sent, received atomic.Int64

	mu       sync.Mutex
	targets  []string // the next connection's first
	mode     Mode
	distance time.Duration    // see Distance
	limits   [2]*rate.Limiter // by direction; nil without a bound
	changed  chan struct{}    // closed and replaced when the mode changes
	listener net.Listener     // nil while cut or closed
	conns    map[*conn]struct{}
	closed   bool
}

// Listen starts a proxy on the TCP address addr ("127.0.0.1:0" picks a port)
// to target. It ends with ctx or by Close.
func Listen(ctx context.Context, addr, target string) (*Proxy, error) {
	ln, err := listen(addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		addr:     ln.Addr().String(),
		targets:  []string{target},
		changed:  make(chan struct{}),
		listener: ln,
		conns:    make(map[*conn]struct{}),
	}
	p.stop = context.AfterFunc(ctx, p.shutdown)
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

func listen(addr string) (net.Listener, error) {
	if host, port, err := net.SplitHostPort(addr); err == nil && port == "0" {
		return ListenBelow(host)
	}
	// Not bound to Listen's context: a TCP listen does not block.
	return net.Listen("tcp4", addr)
}

// Addr returns the address that clients dial; it stays the same through Cut.
func (p *Proxy) Addr() string { return p.addr }

func (p *Proxy) counter(d direction) *atomic.Int64 {
	if d == toTarget {
		return &p.sent
	}
	return &p.received
}

// Stats returns the counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	open := int64(len(p.conns))
	p.mu.Unlock()
	return Stats{Accepted: p.accepted.Load(), Open: open, Sent: p.sent.Load(), Received: p.received.Load()}
}

// Mode returns the current mode.
func (p *Proxy) Mode() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// Distance adds a latency in each direction to that of every mode, those of later
// Sets included: how far away the target is, whatever befalls the way.
func (p *Proxy) Distance(latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.distance = latency
	p.changeLocked()
}

// Set switches the mode, for open connections too. It fails on an invalid
// mode, on a closed proxy, and if the port was lost to someone else while cut.
func (p *Proxy) Set(m Mode) error {
	if err := m.validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	if m.State != Cut && p.listener == nil {
		ln, err := listen(p.addr)
		if err != nil {
			return err
		}
		p.listener = ln
	}
	if m.BytesPerSecond != p.mode.BytesPerSecond {
		p.limits = [2]*rate.Limiter{}
		if m.BytesPerSecond > 0 {
			burst := min(max(m.BytesPerSecond/10, 1), maxBurst) // a tenth of a second's
			for i := range p.limits {
				p.limits[i] = rate.NewLimiter(rate.Limit(m.BytesPerSecond), burst)
			}
		}
	}
	p.mode = m
	if m.State == Cut {
		p.refuseLocked()
		p.abortLocked(false)
	}
	p.changeLocked()
	return nil
}

// SetTargets has later connections lead to several targets in turn, as a load balancer does; one
// that refuses is passed over.
func (p *Proxy) SetTargets(targets ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = slices.Clone(targets)
}

// nextTargets returns the targets in the order in which a connection tries them.
func (p *Proxy) nextTargets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.targets) == 0 {
		return nil
	}
	all := slices.Clone(p.targets)
	p.targets = append(p.targets[1:], p.targets[0])
	return all
}

// HalfOpen has every open connection lose its server and not its client, which is told nothing of
// it and whose bytes are swallowed, for good. New connections are treated as the mode says.
func (p *Proxy) HalfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.openHalf()
	}
}

// ResetWithin resets every open connection after so many more bytes for its client, which are
// likely to end in the middle of what the server says.
func (p *Proxy) ResetWithin(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.toReset.Store(int64(bytes))
	}
}

// Reset ends every open connection with a TCP reset to both sides, whatever
// the mode; new connections are treated as the mode says.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abortLocked(true)
}

// Close ends every connection, stops listening and waits for the proxy's
// goroutines. It may be called again.
func (p *Proxy) Close() error {
	p.stop()
	p.shutdown()
	p.done.Wait()
	return nil
}

func (p *Proxy) shutdown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.refuseLocked()
	p.abortLocked(false)
	p.changeLocked()
}

func (p *Proxy) refuseLocked() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) abortLocked(reset bool) {
	for c := range p.conns {
		c.abort(reset)
	}
}

func (p *Proxy) changeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// current returns the mode with the distance, the limiter of a direction, and a channel that is
// closed when either changes.
func (p *Proxy) current(d direction) (Mode, *rate.Limiter, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.mode
	m.Latency += p.distance
	return m, p.limits[d], p.changed
}

// run accepts on whatever listener the mode leaves open.
func (p *Proxy) run(ctx context.Context) {
	for {
		p.mu.Lock()
		ln, changed, closed := p.listener, p.changed, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return
		case ln == nil:
			<-changed
		default:
			p.accept(ctx, ln)
		}
	}
}

// accept serves connections until ln is closed.
func (p *Proxy) accept(ctx context.Context, ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Transient, such as a client that left the backlog; out of file
			// descriptors would spin without a pause.
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		p.accepted.Add(1)
		connCtx, cancel := context.WithCancel(ctx)
		c := &conn{proxy: p, client: nc.(*net.TCPConn), cancel: cancel, halfOpen: make(chan struct{})}
		if !p.add(c) {
			c.abort(false)
			continue
		}
		p.done.Go(func() {
			defer p.remove(c)
			c.serve(connCtx)
		})
	}
}

// add registers a connection unless the mode has turned against it meanwhile.
func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode.State == Cut {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *conn) {
	c.abort(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
