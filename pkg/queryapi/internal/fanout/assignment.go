package fanout

import (
	"maps"
	"net/http"
	"slices"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
)

// Peer is another process of the fleet.
type Peer struct {
	ID    string
	Epoch aggregate.Revision // the first revision of its index
	URL   string             // of its listener for peers, without a path
	// Client authenticates this process to the peer. It has no timeout, uses HTTP/2, and notices a
	// peer that does not respond to pings.
	Client *http.Client
}

// Assignment is who shares the fleet, and who judges which of its members. It is immutable.
type Assignment struct {
	Self  string // the ID of this process
	Peers []Peer // the others that live
	// Judges has every member of the fleet, with the ID of who judges it; "" where nobody does.
	// One that does not live does not answer. Nil: nothing is known yet.
	Judges map[string]string
	// Standbys has who holds a member without judging it, where somebody does.
	Standbys map[string]string
	// Changed is closed once there is a newer one.
	Changed <-chan struct{}

	once     sync.Once
	live     map[string]*Peer
	byJudge  map[string][]string // members, in order
	digests  map[string]string
	unjudged []string // members whose judge does not live
}

func (a *Assignment) derive() {
	a.once.Do(func() {
		a.live, a.byJudge, a.digests = map[string]*Peer{}, map[string][]string{}, map[string]string{}
		for i := range a.Peers {
			a.live[a.Peers[i].ID] = &a.Peers[i]
		}
		for _, member := range slices.Sorted(maps.Keys(a.Judges)) {
			judge := a.Judges[member]
			if _, ok := a.live[judge]; !ok && judge != a.Self {
				a.unjudged = append(a.unjudged, member)
				continue
			}
			a.byJudge[judge] = append(a.byJudge[judge], member)
		}
		for judge, members := range a.byJudge {
			a.digests[judge] = part.Digest(members)
		}
		for _, id := range a.living() {
			if _, ok := a.digests[id]; !ok {
				a.digests[id] = part.Digest(nil)
			}
		}
	})
}

// Judge returns the live process that judges a member: self, or a peer; neither where none does.
// known is whether the fleet has the member.
func (a *Assignment) Judge(member string) (peer *Peer, self, known bool) {
	a.derive()
	judge, known := a.Judges[member]
	return a.live[judge], known && judge == a.Self, known
}

// Peer returns a live peer by its ID, nil where it does not live.
func (a *Assignment) Peer(id string) *Peer {
	a.derive()
	return a.live[id]
}

// Standby returns the live peer that holds a member without judging it, nil where none does.
func (a *Assignment) Standby(member string) *Peer {
	a.derive()
	return a.live[a.Standbys[member]]
}

// living returns all live processes, by ID.
func (a *Assignment) living() []string {
	ids := []string{a.Self}
	for i := range a.Peers {
		ids = append(ids, a.Peers[i].ID)
	}
	slices.Sort(ids)
	return ids
}

// judging returns the live processes that judge members, and this one, by ID; where some members have no judge, all that
// may hold them.
func (a *Assignment) judging() []string {
	a.derive()
	if len(a.unjudged) > 0 {
		return a.living()
	}
	ids := []string{a.Self}
	for id := range a.byJudge {
		if id != a.Self {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
