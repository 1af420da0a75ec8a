package simulation

import (
	"time"

	"federator.dev/federator/pkg/remediate"
)

// Invariant 1: the distinct targets that a policy has written within any window are never
// more than its limits, plus what was acknowledged for that limit.
type limitModel struct {
	writes  []writtenAt
	allowed []allowance
}

type writtenAt struct {
	write
	at time.Time
}

// strictAcknowledgements is off while an acknowledgement of one limit still lifts the others.
const strictAcknowledgements = false

// allowance is how many targets a person lets pass.
type allowance struct {
	policy, scope string // scope: policy, or a member
	targets       int
	until         time.Time
}

// skew is how much the clocks of processes differ at most, and how long a write takes from
// when it is counted until it is executed.
const skew = 2 * time.Minute

func (m *limitModel) acknowledged(w *world, policy string, h *remediate.Halt) {
	if h.Over != nil {
		m.allowed = append(m.allowed, allowance{policy, h.Over.Scope, h.Over.Targets, time.Now().Add(w.policies[policy].window)})
	}
}

func (m *limitModel) written(w *world, x write) {
	now := time.Now()
	m.writes = append(m.writes, writtenAt{x, now})
	limits := m.limitsOf(w, x.policy)
	if limits == nil {
		return
	}
	all, there := map[string]bool{}, map[string]bool{}
	for _, other := range m.writes {
		if other.policy != x.policy || now.Sub(other.at) >= limits.window-skew {
			continue
		}
		all[other.target()] = true
		if other.member == x.member {
			there[other.target()] = true
		}
	}
	m.compare(w, x.policy, "policy", len(all), limits.perPolicy)
	m.compare(w, x.policy, x.member, len(there), limits.perMember)
}

// limitsOf returns the widest limits of a policy that any process may go by.
func (m *limitModel) limitsOf(w *world, policy string) *wish {
	widest := w.policies[policy]
	for _, p := range w.processes {
		told := p.told.policies[policy]
		if told == nil || widest == nil || told.generation != widest.generation {
			return nil // an edit is under way
		}
	}
	return widest
}

func (m *limitModel) compare(w *world, policy, scope string, targets, limit int) {
	if limit == 0 {
		return
	}
	for _, a := range m.allowed {
		if a.policy == policy && (a.scope == scope || !strictAcknowledgements) && time.Now().Before(a.until.Add(skew)) {
			if limit = max(limit, a.targets); !strictAcknowledgements {
				return
			}
		}
	}
	if targets > limit {
		w.fail("1 limits", "%s has written %d targets within its window (limit of %s), %d are allowed", policy, targets, scope, limit)
	}
}
