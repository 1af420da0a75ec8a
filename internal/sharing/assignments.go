package sharing

import (
	"context"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/shards"
)

// assignments has the newest assignment of members to processes, for the query API.
type assignments struct {
	mu      sync.Mutex
	now     *queryapi.Assignment
	changed chan struct{} // that of now
	of      *shards.Map   // of which it is: two may have one version, where one was deleted
}

func (a *assignments) newest() *queryapi.Assignment {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		a.put(&queryapi.Assignment{})
	}
	return a.now
}

// put makes an assignment the newest. a.mu must be held.
func (a *assignments) put(next *queryapi.Assignment) {
	was := a.changed
	a.changed = make(chan struct{})
	next.Changed = a.changed
	a.now = next
	if was != nil {
		close(was)
	}
}

// set takes a map and the processes that live, if they are others than before.
func (a *assignments) set(self string, m *shards.Map, peers []queryapi.Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now != nil && a.of == m && slices.EqualFunc(a.now.Peers, peers, func(x, y queryapi.Peer) bool { return x == y }) {
		return
	}
	judges, standbys := make(map[string]string, len(m.Members)), map[string]string{}
	for i := range m.Members {
		judges[m.Members[i].Name] = m.Members[i].Judge
		if id := m.Members[i].Standby; id != "" {
			standbys[m.Members[i].Name] = id
		}
	}
	a.of = m
	a.put(&queryapi.Assignment{Self: self, Peers: peers, Judges: judges, Standbys: standbys})
}

// peersEvery is how often it is looked whether a process has another address or epoch.
const peersEvery = 500 * time.Millisecond

// followMap has the query API and the exchange follow the map, and who lives.
func (s *Sharing) followMap(ctx context.Context) error {
	tick := time.NewTicker(peersEvery)
	defer tick.Stop()
	for {
		s.settleOthers()
		m, changed := s.shards.Map()
		if m != nil {
			var peers []queryapi.Peer
			var told []exchange.Peer
			living := s.shards.Peers()
			s.holders.follow(m, living)
			for _, p := range living {
				peers = append(peers, queryapi.Peer{ID: p.ID, Epoch: p.Epoch, URL: p.URL, Client: p.Client})
				told = append(told, exchange.Peer{ID: p.ID, URL: p.URL, Client: p.Client})
			}
			s.importer.SetPeers(told)
			s.view.set(s.o.Name, m, peers)
			if s.fleet.set(m, told) && s.changed != nil {
				s.changed()
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
