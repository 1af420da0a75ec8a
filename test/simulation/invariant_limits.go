package simulation

import (
	"time"

	"federator.dev/federator/pkg/remediate"
)

// Invariant 1: the distinct targets that a policy writes within any window are never more
// than its limits, plus what was acknowledged for that limit, that member and that
// generation; and beyond its limits, it writes what is in the Plan of the halt that was
// acknowledged.
//
// The limits are those that the process knows when it sends a write; what counts is what
// has been executed, by any process, and what is under way from that process.
type limitModel struct {
	writes  []writtenAt
	allowed []allowance
}

type writtenAt struct {
	write
	at time.Time
}

// allowance is how many targets a person lets pass.
type allowance struct {
	policy     string
	scope      string // policy, or a member
	generation int
	targets    int
	until      time.Time
	plan       map[string]bool // the targets that are let pass: those of the halt's Plan
}

// skew is how much the clocks of processes differ at most.
const skew = time.Minute

func (m *limitModel) acknowledged(w *world, p *process, policy string, h *remediate.Halt) {
	x := p.told.policies[policy]
	if x == nil {
		return
	}
	planned := map[string]bool{}
	for _, pl := range w.plans() {
		if pl.name == h.Plan && pl.waits() {
			planned = w.plannedTargets(pl.uid)
		}
	}
	for _, over := range h.Exceeded {
		m.allowed = append(m.allowed, allowance{policy, over.Scope, x.generation, over.Targets, time.Now().Add(x.window), planned})
	}
}

func (m *limitModel) written(x write) {
	m.writes = append(m.writes, writtenAt{x, time.Now()})
}

func (m *limitModel) sent(w *world, p *process, x write) {
	limits := p.told.policies[x.policy]
	if limits == nil {
		return // the gate's model says so
	}
	all, there := m.targets(w, p, x, limits.window)
	m.compare(w, x, limits, "policy", len(all), limits.perPolicy)
	m.compare(w, x, limits, x.member, len(there), limits.perMember)
}

// targets returns the targets that the policy of a write has written within a window, or is
// writing: all of them, and those in its member.
func (m *limitModel) targets(w *world, p *process, x write, window time.Duration) (all, there map[string]bool) {
	all, there = map[string]bool{}, map[string]bool{}
	count := func(o write) {
		if o.policy == x.policy {
			all[o.target()] = true
			if o.member == x.member {
				there[o.target()] = true
			}
		}
	}
	for _, o := range m.writes {
		if time.Since(o.at) < window-skew {
			count(o.write)
		}
	}
	for _, r := range p.link.waiting() {
		if r.writes() {
			count(w.writeOf(r))
		}
	}
	return all, there
}

// count returns how many targets they are.
func (m *limitModel) count(w *world, p *process, x write, window time.Duration) int {
	all, _ := m.targets(w, p, x, window)
	return len(all)
}

func (m *limitModel) compare(w *world, x write, limits *wish, scope string, targets, limit int) {
	if limit == 0 {
		return
	}
	for _, a := range m.allowed {
		if a.policy == x.policy && a.scope == scope && a.generation == limits.generation && a.plan[x.target()] && time.Now().Before(a.until.Add(skew)) {
			limit = max(limit, a.targets)
		}
	}
	if targets > limit {
		w.fail("1 limits", "with %s, %s writes %d targets within its window (limit of %s), %d are allowed", x.target(), x.policy, targets, scope, limit)
	}
}
