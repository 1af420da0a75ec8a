package sharing

import (
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/shards"
)

// others are the members that the peers' index has: those that others judge, and those that this process is to judge until its own
// index has them for that. A member that neither index had would seem not to be there.
type others struct {
	mu      sync.Mutex // held while the peers' index is set
	newest  shards.Fleet
	waiting bool // for the own index
}

// setFleet has the peers' index follow which members others judge.
func (s *Sharing) setFleet(f shards.Fleet) {
	s.others.mu.Lock()
	s.others.newest = f
	ok := s.setOthersLocked()
	s.others.mu.Unlock()
	if ok && f.Version > 0 {
		s.following.Do(func() { close(s.followed) })
	}
}

// settleOthers lets go of what the own index has by now.
func (s *Sharing) settleOthers() {
	s.others.mu.Lock()
	defer s.others.mu.Unlock()
	if s.others.waiting {
		s.setOthersLocked()
	}
}

// setOthersLocked sets what the peers' index has. others.mu must be held.
func (s *Sharing) setOthersLocked() bool {
	f := s.others.newest
	s.others.waiting = false
	members := make([]exchange.FleetMember, 0, len(f.Members))
	for _, m := range f.Members {
		if m.Judge == s.o.Name {
			if s.ownJudges(m.Name) {
				continue
			}
			s.others.waiting = true
		}
		members = append(members, exchange.FleetMember{Name: m.Name, UID: m.UID, Labels: m.Labels, Judge: m.Judge})
	}
	if err := s.importer.SetFleet(members); err != nil {
		s.o.Logger.Error("members of other processes cannot be followed", "error", err)
		return false
	}
	return true
}

// ownJudges reports whether the own index has a member as one that is judged here.
func (s *Sharing) ownJudges(member string) bool {
	m, is := s.own.Snapshot().Member(member)
	return is && m.Role == aggregate.Judge
}
