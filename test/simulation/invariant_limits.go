package simulation

import (
	"slices"
	"time"

	"federator.dev/federator/pkg/remediate"
)

// Invariant 1: the distinct targets that a policy writes within any window are never more
// than its limits, plus what was acknowledged for that limit, that member and that
// generation; targets count once, whatever limit of whatever policy they count towards, and
// each of them is a subject; and beyond its limits, it writes what is in the Plan of the halt that was
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
	scope      string // policy, fleet, or a member
	percent    bool   // of the limit in percent
	generation string
	targets    int
	until      time.Time
	plan       map[string]bool // the targets that are let pass: those of the halt's Plan
}

// skew is how much the clocks of processes differ at most.
const skew = time.Minute

func (m *limitModel) acknowledged(w *world, p *process, policy string, h *remediate.Halt) {
	window := 24 * time.Hour
	if x := p.told.policies[policy]; x != nil { // else it has been deleted
		window = x.window
	}
	planned := map[string]bool{}
	for _, pl := range w.plans() {
		if pl.name == h.Plan && pl.waits() {
			planned = w.plannedTargets(pl.uid)
		}
	}
	for _, over := range h.Exceeded {
		m.allowed = append(m.allowed, allowance{policy, over.Scope, over.Percent, h.Generation, over.Targets, time.Now().Add(window), planned})
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
	// What is written once more uses nothing of a limit: there are as many targets as before.
	again, everywhere := m.hasWritten(x, limits.window)
	if again {
		return
	}
	all := m.targets(w, p, limits.window)
	own, there := map[string]bool{}, map[string]bool{}
	for o := range all {
		if o.policy == x.policy {
			if own[o.target()] = true; o.member == x.member {
				there[o.target()] = true
			}
		}
	}
	m.compare(w, x, limits, "policy", false, own, limits.perPolicy)
	m.compare(w, x, limits, "policy", true, own, share(limits.percent, p.subjects("")))
	m.compare(w, x, limits, x.member, false, there, limits.perMember)
	m.compare(w, x, limits, x.member, true, there, share(limits.percentIn, p.subjects(x.member)))
	if !everywhere {
		m.compare(w, x, limits, "fleet", false, distinct(all), limits.fleet)
	}
}

// hasWritten reports whether the target of a write has been written within a window, for its
// policy or for any.
func (m *limitModel) hasWritten(x write, window time.Duration) (own, any bool) {
	for _, o := range m.writes {
		if o.target() == x.target() && time.Since(o.at) < window-skew {
			own, any = own || o.policy == x.policy, true
		}
	}
	return own, any
}

// share is how many subjects a percentage is, at least one; 0 is no limit.
func share(percent float64, subjects int) int {
	if percent == 0 {
		return 0
	}
	return max(1, int(percent*float64(subjects)/100))
}

// aim is a target of a policy.
type aim struct{ policy, member, name string }

func (a aim) target() string { return a.member + " " + a.name }

// targets returns what was written within a window, by any process, and what a process is
// writing.
func (m *limitModel) targets(w *world, p *process, window time.Duration) map[aim]bool {
	all := map[aim]bool{}
	for _, o := range m.writes {
		if time.Since(o.at) < window-skew {
			all[aim{o.policy, o.member, o.name}] = true
		}
	}
	for _, r := range p.link.waiting() {
		if r.writes() {
			o := w.writeOf(r)
			all[aim{o.policy, o.member, o.name}] = true
		}
	}
	return all
}

// distinct returns the targets, whatever policies they are of.
func distinct(all map[aim]bool) map[string]bool {
	targets := map[string]bool{}
	for o := range all {
		targets[o.target()] = true
	}
	return targets
}

// count returns how many targets the policy of a write has written within a window, or writes.
func (m *limitModel) count(w *world, p *process, x write, window time.Duration) (n int) {
	for o := range m.targets(w, p, window) {
		if o.policy == x.policy {
			n++
		}
	}
	return n
}

// compare checks the targets within a window against a limit, or against what a halt that was
// acknowledged lets pass beyond it: those that others let pass do not count there.
func (m *limitModel) compare(w *world, x write, limits *wish, scope string, percent bool, targets map[string]bool, limit int) {
	if limit == 0 || len(targets) <= limit {
		return
	}
	most := limit
	for n := range m.allowed {
		a := &m.allowed[n]
		if !a.holds(x, limits, scope, percent) || !a.plan[x.target()] {
			continue
		}
		counted := 0
		for target := range targets {
			other := func(b allowance) bool { return b.holds(x, limits, scope, percent) && b.plan[target] }
			if a.plan[target] || !slices.ContainsFunc(m.allowed, other) {
				counted++
			}
		}
		if counted <= a.targets {
			return
		}
		most = max(most, a.targets)
	}
	w.fail("1 limits", "with %s, %s writes %d targets within its window (limit of %s, percent %t), %d are allowed", x.target(), x.policy, len(targets), scope, percent, most)
}

// holds reports whether a halt of that limit was acknowledged, and still lets something pass.
func (a *allowance) holds(x write, limits *wish, scope string, percent bool) bool {
	return a.policy == x.policy && a.scope == scope && a.percent == percent && a.generation == limits.key() && time.Now().Before(a.until.Add(skew))
}
