package sharing

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/handover"
	"federator.dev/federator/pkg/shards"
)

const (
	// seenEvery is how old what this process knows of members may be that it judges next, or once their judge is lost.
	seenEvery = 30 * time.Second
	// seenKeysPatience is how long keys of views wait for since when their violations are there.
	seenKeysPatience = 5 * time.Second
)

// seen yields since when the violations of a member are there, for the giver; nil: this process does not know.
func (s *Sharing) seen(member string) iter.Seq[handover.Seen] {
	if s.memory == nil {
		return nil
	}
	known := s.memory.Known(member)
	if known == nil {
		return nil
	}
	return func(yield func(handover.Seen) bool) {
		for r := range known {
			if !yield(handover.Seen{Binding: r.Binding, Subject: r.Subject, Violation: r.Violation, At: r.At}) {
				return
			}
		}
	}
}

// learn asks holders, one after the other, since when violations are there until one knows, or all were asked.
func (s *Sharing) learn(ctx context.Context, from verdictmemory.Source, holders ...handover.Holder) {
	if s.memory == nil {
		return
	}
	for _, h := range holders {
		list, err := s.taker.Seen(ctx, h, from.Member, from.UID)
		if err != nil {
			s.o.Logger.Debug("a process does not say since when violations are there", "member", from.Member, "peer", h.ID, "error", err)
			continue
		}
		records := make([]verdictmemory.Record, 0, len(list))
		for _, x := range list {
			r := verdictmemory.Record{Binding: x.Binding}
			r.Subject, r.Violation, r.At = x.Subject, x.Violation, x.At
			records = append(records, r)
		}
		s.memory.Learn(from, records)
		return
	}
}

// followSeen learns since when violations are there of members that this process judges next, or once their judge is lost: when it
// comes to that, the judge may not say it any more.
func (s *Sharing) followSeen(ctx context.Context) error {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	learned := map[string]time.Time{}
	for {
		m, changed := s.shards.Map()
		if m != nil && s.memory != nil {
			s.learnMembers(ctx, m, learned)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// learnMembers learns of those members of a map that were not asked for a while. learned says when each was.
func (s *Sharing) learnMembers(ctx context.Context, m *shards.Map, learned map[string]time.Time) {
	was := map[string]time.Time{}
	peers := s.shards.Peers()
	for i := range m.Members {
		e := &m.Members[i]
		if e.Judge == s.o.Name || e.Next != s.o.Name && e.Standby != s.o.Name {
			continue
		}
		at := learned[e.Name]
		if j := slices.IndexFunc(peers, func(p shards.Peer) bool { return p.ID == e.Judge }); j >= 0 && time.Since(at) >= seenEvery/2 {
			s.learn(ctx, verdictmemory.Source{Member: e.Name, UID: e.UID}, holder(peers[j]))
			at = time.Now()
		}
		was[e.Name] = at
	}
	clear(learned)
	for name, at := range was {
		learned[name] = at
	}
}

// learnKeys learns since when the violations of keys of views are there, of all who judged some by the map before, or by nobody
// knows which.
func (s *Sharing) learnKeys(ctx context.Context, before, now *shards.Map) {
	if s.memory == nil || now == nil || before != nil && slices.Equal(processesOf(before), processesOf(now)) {
		return
	}
	peers := s.shards.Peers()
	if before != nil {
		for _, id := range processesOf(before) {
			if p, is := s.holders.peer(id); is && s.shards.Released(id) {
				peers = append(peers, p)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, seenKeysPatience)
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, p := range peers {
		if p.ID != s.o.Name {
			asking.Go(func() { s.learn(ctx, verdictmemory.Source{Process: p.ID}, holder(p)) })
		}
	}
}

func processesOf(m *shards.Map) []string {
	var out []string
	for _, p := range m.Processes {
		out = append(out, p.ID)
	}
	slices.Sort(out)
	return out
}

func holder(p shards.Peer) handover.Holder {
	return handover.Holder{ID: p.ID, URL: p.URL, Client: p.Client}
}
