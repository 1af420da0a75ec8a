package shards

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

const (
	dialTimeout = 5 * time.Second
	pingAfter   = 15 * time.Second // that nothing came over a connection
)

// peerTable has the other processes, and their clients.
type peerTable struct {
	mu      sync.Mutex
	all     []Peer                 // by ID
	clients map[string]*peerClient // by ID
	closed  bool
}

type peerClient struct {
	address string
	client  *http.Client
	close   func()
}

func (t *peerTable) list() []Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

func (t *peerTable) find(id string) (Peer, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, is := slices.BinarySearchFunc(t.all, id, func(p Peer, id string) int { return strings.Compare(p.ID, id) })
	if !is {
		return Peer{}, false
	}
	return t.all[i], true
}

// set takes the processes that there are. Connections to one that has gone, or moved, end when they are idle.
func (t *peerTable) set(processes []Process, dial func(id, address string) *peerClient) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.all = t.all[:0:0]
	is := map[string]bool{}
	for _, p := range processes {
		is[p.ID] = true
		c := t.clients[p.ID]
		if c == nil || c.address != p.Address {
			if c != nil {
				c.close()
			}
			c = dial(p.ID, p.Address)
			t.clients[p.ID] = c
		}
		t.all = append(t.all, Peer{ID: p.ID, Epoch: aggregate.Revision(p.Epoch), URL: "https://" + p.Address, Client: c.client})
	}
	for id, c := range t.clients {
		if !is[id] {
			c.close()
			delete(t.clients, id)
		}
	}
}

func (t *peerTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, c := range t.clients {
		c.close()
	}
}

// refreshPeers keeps the table equal to the map's processes, as their Leases say where they are now, until ctx is done. Which of
// them live the map says: where the hub is away from everybody all Leases expire, and nobody has gone.
func (s *Shards) refreshPeers(ctx context.Context) {
	for {
		select {
		case <-s.refresh:
		case <-ctx.Done():
			return
		}
		m, _ := s.Map()
		var others []Process
		if m != nil {
			s.mu.Lock()
			for _, p := range m.Processes {
				if p.ID == s.o.ID {
					continue
				}
				if now, is := s.leases.Process(p.ID); is {
					p.Epoch, p.Address = now.Epoch, now.Address
				}
				others = append(others, p)
			}
			s.mu.Unlock()
		}
		s.peers.set(others, s.dialer)
	}
}

// dialer returns a client that reaches one process at an address.
func (s *Shards) dialer(id, address string) *peerClient {
	transport := &http.Transport{
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			config, err := s.clientTLS(id) // of the CAs of now
			if err != nil {
				return nil, err
			}
			d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: config}
			ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
			defer cancel()
			return d.DialContext(ctx, network, address)
		},
		ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute, DisableCompression: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &peerClient{address: address, client: client, close: transport.CloseIdleConnections}
}
