package hubside

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent/internal/identity"
)

// Bounds of connections.
const (
	maxPerMember    = 16     // an agent opens fewer, also while it replaces them
	defaultMaxConns = 16_384 // of all agents

	// dialWait is how long a dial waits for a connection: the agent opens the next one as soon as one is taken.
	dialWait = time.Second
)

// errAway is the error of a dial to a member whose agent is not connected.
var errAway = errors.New("the agent of the member is not connected")

// registry has the connections of agents, by member.
type registry struct {
	max     int
	life    time.Duration               // of certificates
	ready   func(namespace string) bool // whether the Members of a namespace are known; nil: they are
	running sync.WaitGroup              // of connections that wait to be taken
	changed trigger.Trigger             // a member is connected, or is not any more

	mu      sync.Mutex
	closed  bool
	total   int
	members map[string]*member         // by UID: those whose agents may connect
	trusted map[[sha256.Size]byte]bool // digests of the CAs
}

// member is one whose agent may connect.
type member struct {
	of      identity.Identity
	conns   map[*agentConn]struct{}
	idle    []*agentConn  // that wait to be taken, oldest first
	arrived chan struct{} // closed and replaced when one comes
	version string        // of the agent, as it says; "" if it has not said
	expires time.Time     // of the certificate of the newest connection
	heard   time.Time     // when something last came over connections that have ended

	renewals, hellos *rate.Limiter
}

// newRegistry returns a registry of so many connections at most, of agents whose certificates have such a life.
func newRegistry(most int, life time.Duration) *registry {
	return &registry{max: most, life: life, changed: trigger.New(), members: map[string]*member{}}
}

// allow lets the agent of a member connect.
func (r *registry) allow(of identity.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[of.UID]; m == nil {
		r.members[of.UID] = &member{
			of: of, conns: map[*agentConn]struct{}{}, arrived: make(chan struct{}),
			renewals: rate.NewLimiter(rate.Every(r.life/renewsPerLife), renewBurst), hellos: rate.NewLimiter(helloRate, helloBurst),
		}
	}
}

// forbid ends the connections of a member at once, and lets it open no more.
func (r *registry) forbid(uid string) {
	r.mu.Lock()
	var conns []*agentConn
	if m := r.members[uid]; m != nil {
		conns = slices.Collect(maps.Keys(m.conns))
	}
	delete(r.members, uid)
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing to report to
	}
}

// trust sets the digests of the CAs that agents are verified by. Connections by others end.
func (r *registry) trust(authorities map[[sha256.Size]byte]bool) {
	r.mu.Lock()
	r.trusted = authorities
	var conns []*agentConn
	for _, m := range r.members {
		for c := range m.conns {
			if !authorities[c.authority] {
				conns = append(conns, c)
			}
		}
	}
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing to report to
	}
}

// trusts reports whether a CA is one of those of now.
func (r *registry) trusts(authority [sha256.Size]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trusted[authority]
}

// close ends all connections.
func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	var conns []*agentConn
	for _, m := range r.members {
		conns = slices.AppendSeq(conns, maps.Keys(m.conns))
	}
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // nothing to report to
	}
	r.running.Wait()
}

// member returns a member whose agent may connect, or nil. The lock is held.
func (r *registry) member(of identity.Identity) *member {
	if m := r.members[of.UID]; m != nil && m.of == of {
		return m
	}
	return nil
}

// known reports whether the agent of a member may connect.
func (r *registry) known(of identity.Identity) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.member(of) != nil
}

// errNotYet is the error of a federator that has just started.
var errNotYet = problemf(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "federator does not know the Members of the namespace yet")

// unknown returns the error of a member that is not there.
func (r *registry) unknown(of identity.Identity) error {
	if r.ready != nil && !r.ready(of.Namespace) {
		return errNotYet
	}
	return gone(of)
}

// charge returns why an agent may not ask now, by one of its member's limiters. That it may counts.
func (r *registry) charge(of identity.Identity, by func(*member) *rate.Limiter) error {
	r.mu.Lock()
	m := r.member(of)
	may := m != nil && by(m).Allow()
	r.mu.Unlock()
	switch {
	case m == nil:
		return r.unknown(of)
	case !may:
		return errBusy
	}
	return nil
}

// mayRenew returns why an agent may not renew now. That it may counts.
func (r *registry) mayRenew(of identity.Identity) error {
	return r.charge(of, func(m *member) *rate.Limiter { return m.renewals })
}

// hello returns why an agent may not connect, and takes note of its version.
func (r *registry) hello(of identity.Identity, version string) error {
	if err := r.charge(of, func(m *member) *rate.Limiter { return m.hellos }); err != nil || version == "" {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.member(of); m != nil && m.version != version {
		m.version = version
		r.changed.Fire()
	}
	return nil
}

// add takes a connection that an agent has opened, until it expires, or returns why not.
func (r *registry) add(secure *tls.Conn, of peer, expires time.Time) error {
	c := &agentConn{Conn: secure, registry: r, authority: of.authority, watched: make(chan struct{})}
	c.heard.Store(time.Now().UnixNano())
	r.mu.Lock()
	m := r.member(of.Identity)
	var evicted *agentConn
	var err error
	switch {
	case r.closed:
		err = net.ErrClosed
	case m == nil:
		err = gone(of.Identity)
	case !r.trusted[of.authority]: // it was, when the handshake began
		err = errDropped
	case r.total >= r.max:
		err = fmt.Errorf("there are %d connections of agents", r.total)
	case len(m.conns) >= maxPerMember && len(m.idle) == 0:
		err = fmt.Errorf("the agent has %d connections already", len(m.conns))
	case len(m.conns) >= maxPerMember:
		evicted = m.idle[0] // most likely it is dead
		m.idle = m.idle[1:]
		delete(m.conns, evicted)
		r.total--
	}
	if err == nil {
		c.member = m
		c.expiry = time.AfterFunc(time.Until(expires), func() { _ = c.Close() })
		r.total++
		m.conns[c], m.idle, m.expires = struct{}{}, append(m.idle, c), expires
		close(m.arrived)
		m.arrived = make(chan struct{})
		r.running.Go(c.watch)
	}
	r.mu.Unlock()
	if evicted != nil {
		_ = evicted.Close() // nothing to report to
	}
	if err == nil {
		r.changed.Fire()
	}
	return err
}

// take returns a connection that was not taken. It waits a moment for one.
func (r *registry) take(ctx context.Context, uid string) (*agentConn, error) {
	wait := time.NewTimer(dialWait)
	defer wait.Stop()
	for {
		r.mu.Lock()
		m := r.members[uid]
		if m == nil {
			r.mu.Unlock()
			return nil, errAway
		}
		if n := len(m.idle); n > 0 {
			c := m.idle[n-1] // the newest is the most likely to live
			m.idle = m.idle[:n-1]
			r.mu.Unlock()
			if c.use() {
				return c, nil
			}
			continue
		}
		arrived := m.arrived
		r.mu.Unlock()
		select {
		case <-arrived:
		case <-wait.C:
			return nil, errAway
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// remove forgets a connection.
func (r *registry) remove(c *agentConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, is := c.member.conns[c]; !is {
		return
	}
	r.total--
	delete(c.member.conns, c)
	c.member.idle = slices.DeleteFunc(c.member.idle, func(o *agentConn) bool { return o == c })
	if at := c.lastHeard(); at.After(c.member.heard) {
		c.member.heard = at
	}
	r.changed.Fire()
}

// state is what is known of the agent of a member.
type state struct {
	connected bool
	version   string
	heard     time.Time // zero: never
	expires   time.Time // zero: it was not connected
}

func (r *registry) state(uid string) state {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[uid]
	if m == nil {
		return state{}
	}
	s := state{connected: len(m.conns) > 0, version: m.version, heard: m.heard, expires: m.expires}
	for c := range m.conns {
		if at := c.lastHeard(); at.After(s.heard) {
			s.heard = at
		}
	}
	return s
}

// agentConn is a connection over which an agent serves HTTP/2.
type agentConn struct {
	*tls.Conn
	registry  *registry
	member    *member
	authority [sha256.Size]byte // the digest of the CA that it was verified by
	expiry    *time.Timer       // closes it with its certificate, or after the life of one
	heard     atomic.Int64      // unix nanoseconds of what last came
	watched   chan struct{}
	lost      bool // while it waited to be taken; set before watched is closed
	closing   sync.Once
}

// past is a time that ends reads.
var past = time.Unix(1, 0)

// watch waits for the end of a connection that nobody has taken yet: nothing comes over it before.
func (c *agentConn) watch() {
	defer close(c.watched)
	var b [1]byte
	n, err := c.Conn.Read(b[:])
	var timeout net.Error
	if n == 0 && errors.As(err, &timeout) && timeout.Timeout() {
		return // it is taken
	}
	c.lost = true
	_ = c.Close() // nothing to report to
}

// use ends the watch. It reports whether the connection was alive.
func (c *agentConn) use() bool {
	_ = c.SetReadDeadline(past) //nolint:errcheck // the watch ends anyway
	<-c.watched
	return !c.lost && c.SetReadDeadline(time.Time{}) == nil
}

func (c *agentConn) lastHeard() time.Time { return time.Unix(0, c.heard.Load()) }

// Read implements net.Conn. It notes that the agent lives.
func (c *agentConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// Close closes the socket below TLS, without a word: the agent may not listen.
func (c *agentConn) Close() error {
	var err error
	c.closing.Do(func() {
		err = c.NetConn().Close()
		c.registry.remove(c)
		c.expiry.Stop()
	})
	return err
}
