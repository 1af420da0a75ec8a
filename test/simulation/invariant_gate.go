package simulation

import "time"

// Invariant 2: at most one process leads; no request to write is sent after the process could know of a stop, a
// suspension, a held member or an end of its lease; at most so many as are allowed are under
// way at a member; and each ends with the lease that it was sent under.
//
// What a process could know is what the world has told it: told is updated by the same step
// that tells it.
type gateModel struct{}

// leaseDuration is after what time without renewal another process may take the lease.
const leaseDuration = 12500 * time.Millisecond

func (gateModel) sent(w *world, p *process, _ *parked, x write) {
	const invariant = "2 gate"
	if why := p.told.held[x.member]; why != "" {
		w.fail(invariant, "%s writes to %s although it knows that the member is held: %s", p.name, x.target(), why)
	}
	if !p.leads() {
		w.fail(invariant, "%s writes to %s and does not hold the lease", p.name, x.target())
	}
	under := 0
	for _, r := range p.link.waiting() {
		if r.writes() && r.to == x.member && w.writeOf(r).rollbackOf == "" { // people may besides
			under++
		}
	}
	if under > w.perMember {
		w.fail(invariant, "%s has %d writes under way at %s, at most %d are allowed", p.name, under, x.member, w.perMember)
	}
}

// policy is told of each write for a policy, which is no rollback.
func (gateModel) policy(w *world, p *process, x write) {
	const invariant = "2 gate"
	if why := p.told.stops.All; why != "" {
		w.fail(invariant, "%s writes to %s although it knows that all is stopped: %s", p.name, x.target(), why)
	}
	if why := p.told.stops.Policies[x.policy]; why != "" {
		w.fail(invariant, "%s writes for %s although it knows that the policy is stopped: %s", p.name, x.policy, why)
	}
	if s := p.told.policies[x.policy]; x.policy != "" && (s == nil || s.suspended || !s.enforced) {
		w.fail(invariant, "%s writes to %s although it knows that the policy is suspended or not enforced: %v", p.name, x.target(), s)
	}
}

// check looks for two leaders, and for writes that outlast their lease.
func (gateModel) check(w *world) {
	leader := ""
	for _, p := range w.processes {
		if p.leads() {
			if leader != "" {
				w.fail("2 gate", "%s and %s lead", leader, p.name)
			}
			leader = p.name
		}
		for _, r := range p.link.waiting() {
			if r.writes() && since(r.sent) > leaseDuration {
				w.fail("2 gate", "%s: a write to %s is under way %v after it was sent, longer than any lease", p.name, r.to, since(r.sent))
			}
		}
	}
}
