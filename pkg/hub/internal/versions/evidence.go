package versions

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/policy"
)

const (
	compareInterval = 2 * time.Second // between two comparisons of a policy
	compareRest     = 19              // times what comparing took, until the next: 5 % of the time
)

// Evidence compares the versions of policies, each every other second, and all of them in a
// twentieth of the time at most. It belongs to one goroutine.
type Evidence struct {
	of   map[types.UID]*compared
	next time.Time // no policy is compared before
}

type compared struct {
	of   string
	at   time.Time
	said *evidence.Statement // nil: there is none
}

// Compared is a policy with versions to compare.
type Compared struct {
	UID     types.UID
	Name    string
	Version string // of the next one, as verdicts name it
	First   bool   // there is no other
	Of      string // names both versions, and what else the verdicts follow from
}

// Update compares those that are due, the one that was compared longest ago first, and forgets
// all others than these.
func (e *Evidence) Update(state *policy.State, policies []Compared, clock func() time.Time) {
	next := make(map[types.UID]*compared, len(policies))
	share := sync.OnceValue(func() evidence.Share { return evidence.ShareOf(state) })
	due := make([]*Compared, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		is := e.of[p.UID]
		if is == nil || is.of != p.Of {
			is = &compared{of: p.Of}
		}
		next[p.UID] = is
		due = append(due, p)
	}
	e.of = next
	slices.SortStableFunc(due, func(a, b *Compared) int { return next[a.UID].at.Compare(next[b.UID].at) })
	for _, p := range due {
		is, now := next[p.UID], clock()
		if now.Before(e.next) || !is.at.IsZero() && now.Sub(is.at) < compareInterval {
			return // those after it were compared later
		}
		is.said = nil
		if part, ok := evidenceOf(state, p); ok {
			is.said = &evidence.Statement{Of: p.Of, Share: share(), Part: part}
		}
		is.at = clock()
		e.next = is.at.Add(compareRest * is.at.Sub(now))
	}
}

// Of returns the evidence on a policy's next version, nil while there is none.
func (e *Evidence) Of(uid types.UID) *evidence.Statement {
	if is := e.of[uid]; is != nil {
		return is.said
	}
	return nil
}

// evidenceOf compares the versions of a policy; false where the state is not of them.
func evidenceOf(state *policy.State, p *Compared) (evidence.Part, bool) {
	if p.First {
		for b := range state.Bindings() {
			if b.Name == p.Name && b.Version == p.Version {
				return evidence.OfFirst(state, p.Name), true
			}
		}
		return evidence.Part{}, false
	}
	c, ok := state.Compare(p.Name)
	if !ok || c.Version != p.Version {
		return evidence.Part{}, false
	}
	return evidence.OfVersions(&c), true
}
