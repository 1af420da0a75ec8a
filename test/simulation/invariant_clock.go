package simulation

import "time"

// Invariant 2, of windows: nothing is sent for a policy while its window is closed, by the clock
// of the process that sends it.
type windowModel struct{}

func (windowModel) sent(w *world, p *process, r *parked, x write) {
	wish := p.told.policies[x.policy]
	if wish == nil {
		return // the gate's model says so
	}
	if now := r.sent.Add(p.offset); !wish.opens.at(now) {
		w.fail("2 gate", "%s writes to %s at %s of its clock, and the window of %s is closed: %v", p.name, x.target(), now.UTC().Format(time.TimeOnly), x.policy, wish.opens)
	}
}

// at reports whether an opening is open at a time.
func (o opening) at(now time.Time) bool {
	return o.every == 0 || now.Sub(now.UTC().Truncate(24*time.Hour))%o.every < o.open
}
