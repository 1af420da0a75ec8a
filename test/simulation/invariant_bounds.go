package simulation

import "time"

// Invariant 2, of all members together: within any time, a process sends no more requests than
// its rate allows, and a second's worth at once; it writes to no more members at once than it may;
// nothing while it knows that too large a share of them is away; and when more corrections have
// failed than may, it stops everything.
type boundModel struct {
	sends map[*process][]time.Time
}

func newBoundModel() boundModel { return boundModel{sends: map[*process][]time.Time{}} }

func (m *boundModel) sent(w *world, p *process, r *parked, x write) {
	const invariant = "2 bounds"
	b := w.bounds
	if b.rate > 0 {
		m.sends[p] = append(m.sends[p], r.sent)
		for n, at := range m.sends[p] {
			most := max(b.rate, 1) + b.rate*r.sent.Sub(at).Seconds() + 1e-6
			if sent := len(m.sends[p]) - n; float64(sent) > most {
				w.fail(invariant, "%s has sent %d writes in %v, at a rate of %v a second", p.name, sent, r.sent.Sub(at), b.rate)
			}
		}
	}
	written := map[string]bool{}
	for _, r := range p.link.waiting() {
		if r.writes() && w.writeOf(r).rollbackOf == "" {
			written[r.to] = true
		}
	}
	if b.members > 0 && len(written) > b.members {
		w.fail(invariant, "%s writes to %d members at once, with %s", p.name, len(written), x.target())
	}
	if away, all := p.countAway(); b.away > 0 && float64(away)*100 > b.away*float64(all) {
		w.fail(invariant, "%s writes to %s while %d of %d members are away", p.name, x.target(), away, all)
	}
	if _, again := w.model.limits.hasWritten(x, time.Hour); b.targets > 0 && !again && x.rollbackOf == "" && p.told.policies[x.policy] != nil {
		all := w.model.limits.targets(w, p, time.Hour)
		w.model.limits.compare(w, x, p.told.policies[x.policy], "fleet", false, distinct(all), b.targets)
	}
}

// check looks at what has failed.
func (m *boundModel) check(w *world) {
	for _, p := range w.processes {
		w.mu.Lock()
		n := len(p.failures)
		recent := 0
		for _, at := range p.failures {
			if p.failures[n-1].Sub(at) < failureWindow {
				recent++
			}
		}
		tripped := p.tripped
		if p.tripped = false; tripped {
			p.failures = nil
		}
		w.mu.Unlock()
		if tripped {
			w.note("%s stops everything", p.name)
		} else if b := w.bounds.failures; b > 0 && recent > b {
			w.fail("2 bounds", "%d corrections of %s failed within %v, and it has not stopped everything", recent, p.name, failureWindow)
		}
	}
}
