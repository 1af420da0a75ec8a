package sharing

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/handover"
	"federator.dev/federator/pkg/shards"
)

const (
	// handOverFor is how long a process that ends in order answers those who take over what it judged, at most.
	handOverFor   = 10 * time.Second
	handOverEvery = 50 * time.Millisecond
)

// TakeOver takes what another process holds of a member, for clusterinformers.Options.
func (s *Sharing) TakeOver(ctx context.Context, t clusterinformers.TakeOver) map[aggregate.Kind]time.Time {
	if s.memory != nil {
		s.memory.Joins(t.Member, t.UID)
	}
	s.learn(ctx, verdictmemory.Source{Member: t.Member, UID: t.UID}, s.holdersOf(t.Member)...) // before what it has is judged
	return s.taker.Take(ctx, handover.Wish{
		Index: s.own, Member: t.Member, UID: t.UID, Form: s.form, Wanted: t.Wanted, MaxObjects: t.MaxObjects, MaxBytes: t.MaxBytes,
	})
}

// holders knows who judged members before, and how those processes were reached.
type holders struct {
	mu     sync.Mutex
	of     *shards.Map
	former map[string]string      // by member: the judge before that of the newest map
	peers  map[string]shards.Peer // by ID, as they were reached last
}

// follow takes the newest map, and the processes that live.
func (h *holders) follow(m *shards.Map, peers []shards.Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.peers == nil {
		h.peers = map[string]shards.Peer{}
	}
	for _, p := range peers {
		h.peers[p.ID] = p
	}
	if h.of == m {
		return
	}
	former := map[string]string{}
	for i := range m.Members {
		e := &m.Members[i]
		was := ""
		if before, is := h.of.Member(e.Name); is {
			was = before.Judge
		}
		if was == "" || was == e.Judge {
			was = h.former[e.Name]
		}
		if was != "" && was != e.Judge {
			former[e.Name] = was
		}
	}
	h.of, h.former = m, former
}

// before returns who judged a member before.
func (h *holders) before(member string) (shards.Peer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, is := h.peers[h.former[member]]
	return p, is
}

// peer returns a process as it was reached last.
func (h *holders) peer(id string) (shards.Peer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, is := h.peers[id]
	return p, is
}

// holdersOf returns the processes that hold a member by the newest map, and who judged it before where that has ended in order: it
// answers for a moment still.
func (s *Sharing) holdersOf(member string) []handover.Holder {
	m := s.newest()
	if m == nil {
		return nil
	}
	peers := s.shards.Peers()
	s.holders.follow(m, peers)
	var out []handover.Holder
	if e, is := m.Member(member); is {
		for _, id := range []string{e.Judge, e.Standby} {
			for _, p := range peers {
				if p.ID == id && id != s.o.Name {
					out = append(out, holder(p))
				}
			}
		}
	}
	if p, is := s.holders.before(member); is && p.ID != s.o.Name && s.shards.Released(p.ID) {
		out = append(out, holder(p))
	}
	return out
}

// handOver waits until the members that only this process holds were taken over, and all others know since when violations of keys of
// views are there, once it ends in order and has said so. Where nobody is there to take them it does not.
func (s *Sharing) handOver(ctx context.Context) {
	m := s.newest()
	if m == nil || len(m.Processes) < 2 {
		return
	}
	waits := map[string]bool{}
	for i := range m.Members {
		if e := &m.Members[i]; e.Judge == s.o.Name && e.Standby == "" && (e.Next == "" || !s.giver.Given(e.Name)) {
			waits[e.Name] = true
		}
	}
	keys := s.takeKeys(m)
	s.giver.Forget()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverFor)
	defer cancel()
	tick := time.NewTicker(handOverEvery)
	defer tick.Stop()
	for {
		maps.DeleteFunc(waits, func(member string, _ bool) bool { return s.giver.Given(member) })
		maps.DeleteFunc(keys, func(process string, _ bool) bool { return s.giver.GivenKeys(process) })
		if len(waits)+len(keys) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.o.Logger.Warn("not all was taken over by other processes: members are listed, and violations of keys of views first seen again", "members", len(waits), "processes", len(keys))
			return
		}
	}
}

// takeKeys returns the processes that may judge keys of views next, where this one knows violations of some.
func (s *Sharing) takeKeys(m *shards.Map) map[string]bool {
	out := map[string]bool{}
	if s.memory == nil {
		return out
	}
	for range s.memory.Known("") {
		for _, p := range m.Processes {
			if _, lives := s.holders.peer(p.ID); lives && p.ID != s.o.Name {
				out[p.ID] = true
			}
		}
		break
	}
	return out
}

// unlessEnding answers nothing but handovers once ctx is done, and this process ends: what it knows otherwise is not kept up to
// date. What is under way then ends.
func (s *Sharing) unlessEnding(ctx context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == handover.Path || r.URL.Path == handover.SeenPath {
			h.ServeHTTP(w, r)
			return
		}
		if ctx.Err() != nil {
			http.Error(w, "the process ends", http.StatusServiceUnavailable)
			return
		}
		during, cancel := context.WithCancelCause(r.Context())
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		defer cancel(nil)
		h.ServeHTTP(w, r.WithContext(during))
	})
}
