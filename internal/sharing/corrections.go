package sharing

import (
	"net/http"
	"slices"
	"sync"

	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/shards"
)

// intentsFleet has who judges what, for corrections.
type intentsFleet struct {
	self string

	mu    sync.Mutex
	now   *intents.Fleet // nil before the first map
	of    *shards.Map    // of which it is: two may have one version, where one was deleted
	peers []exchange.Peer
}

// set takes a map and the processes that live, and reports whether they are others than before.
func (f *intentsFleet) set(m *shards.Map, peers []exchange.Peer) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != nil && f.of == m && slices.Equal(f.peers, peers) {
		return false
	}
	next := &intents.Fleet{Self: f.self, Peers: make(map[string]intents.Peer, len(peers)), Members: make(map[string]intents.Member, len(m.Members))}
	for _, p := range peers {
		next.Peers[p.ID] = intents.Peer{ID: p.ID, URL: p.URL, Client: p.Client}
	}
	assigned := map[string]bool{}
	for i := range m.Members {
		next.Members[m.Members[i].Name] = intents.Member{UID: m.Members[i].UID, Judge: m.Members[i].Judge}
		assigned[m.Members[i].Judge] = true
	}
	for _, ids := range [][]string{m.Keys.Now, m.Keys.Before} {
		for _, id := range ids {
			assigned[id] = true
		}
	}
	delete(assigned, "")
	for id := range assigned {
		next.Processes = append(next.Processes, id)
	}
	slices.Sort(next.Processes)
	f.now, f.of, f.peers = next, m, peers
	return true
}

// IntentsFleet returns who judges what, for corrections; nil while that is not known.
func (s *Sharing) IntentsFleet() *intents.Fleet {
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	return s.fleet.now
}

// Unsettled returns why another process may have the same corrections as this one, "" if none has.
func (s *Sharing) Unsettled() string {
	if len(s.shards.KeyOwner().Before) > 0 {
		return "keys of views change their owner"
	}
	return ""
}

// PeerOf returns which process a request of a peer is from, "" if it is none.
func PeerOf(r *http.Request) string {
	id, ok := shards.PeerOf(r)
	if !ok {
		return ""
	}
	return id
}

// Wants reports whether another process knows of objects that are judged here and have some keys.
func (s *Sharing) Wants(process string, k *interest.Keys) bool { return s.exporter.Wants(process, k) }
