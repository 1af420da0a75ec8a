package sharing

import (
	"context"
	"time"

	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/shards"
)

const (
	// keysPatience is how long others go on to judge keys that are this process's by now, where it cannot hear what they are of.
	keysPatience = time.Minute
	keysEvery    = 500 * time.Millisecond
)

// followKeys has the loop judge the keys of views that are this process's, by the newest map. The map is applied, so that others
// let go of these keys, once the loop has evaluated what they are of: before, it knows of no key of members of others.
func (s *Sharing) followKeys(ctx context.Context) error {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	var of *shards.Map
	var since time.Time
	heard, done := false, false
	var until uint64 // the change of the peers' index up to which all had told
	for {
		m, changed := s.shards.Map()
		if m != of {
			if s.loop != nil {
				s.learnKeys(ctx, of, m)
				if err := s.loop.SetKeyOwner(ctx, s.KeyOwner()); err != nil {
					return err
				}
			}
			of, since, heard, done = m, time.Now(), false, false
			s.applied.Store(min(s.applied.Load(), m.Version-1)) // of two maps one may have replaced the other
		}
		if m != nil && !done {
			if !heard && allTell(m, s.o.Name, s.importer.Status()) {
				heard, until = true, s.peers.Snapshot().Changes()
			}
			if done = s.loop == nil || heard && s.loop.Heard() >= until && holdsKeys(s.loop.State()) || time.Since(since) > keysPatience; done {
				s.applied.Store(m.Version)
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

// holdsKeys reports whether the loop knows of each key that it judges, as others have told all that contributes to them.
func holdsKeys(s *policy.State) bool { return s != nil && s.HoldsKeys() }

// allTell reports whether all other processes of a map have told all that they judge, and go on.
func allTell(m *shards.Map, self string, peers []exchange.PeerStatus) bool {
	tells := make(map[string]bool, len(peers))
	for _, p := range peers {
		tells[p.ID] = p.Connected
	}
	for _, p := range m.Processes {
		if p.ID != self && !tells[p.ID] {
			return false
		}
	}
	return true
}
