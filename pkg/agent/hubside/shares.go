package hubside

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// shares bounds how many of something there are at once: of all, and of each that has some, so that one does not take
// all of them.
type shares struct {
	most, each int

	mu    sync.Mutex
	total int
	of    map[string]int
}

func newShares(most, each int) *shares {
	return &shares{most: most, each: each, of: map[string]int{}}
}

// take takes one. It reports whether there was one left.
func (s *shares) take(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.most || s.of[who] >= s.each {
		return false
	}
	s.total++
	s.of[who]++
	return true
}

// give gives one back.
func (s *shares) give(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.of[who]--; s.of[who] <= 0 {
		delete(s.of, who)
	}
}

// origin is who a connection is from, as far as an address says: somebody who has an IPv6 address has 2⁶⁴ of them.
func origin(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return ip.String()
	}
	return network.String()
}

// handedOver is a listener of connections that others have accepted, each within a share.
type handedOver struct {
	address net.Addr
	conns   chan net.Conn
	done    chan struct{}
	closing sync.Once
	running sync.WaitGroup // of those that are handed over and not closed

	mu   sync.Mutex
	give map[net.Conn]func() // of the same
}

func newHandedOver(address net.Addr) *handedOver {
	return &handedOver{address: address, conns: make(chan net.Conn), done: make(chan struct{}), give: map[net.Conn]func(){}}
}

// hand hands a connection over, or closes it where there are too many.
func (h *handedOver) hand(c *tls.Conn, of *shares, who string) {
	if !of.take(who) {
		refuse(c.NetConn())
		return
	}
	h.running.Add(1)
	h.mu.Lock()
	h.give[c] = func() { of.give(who) }
	h.mu.Unlock()
	select {
	case h.conns <- c:
	case <-h.done:
		h.connState(c, http.StateClosed)
		_ = c.NetConn().Close() // nothing to report to
	}
}

// connState gives the shares of those back that have ended.
func (h *handedOver) connState(c net.Conn, state http.ConnState) {
	if state != http.StateClosed {
		return
	}
	h.mu.Lock()
	give := h.give[c]
	delete(h.give, c)
	h.mu.Unlock()
	if give != nil {
		give()
		h.running.Done()
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
