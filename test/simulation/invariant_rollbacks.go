package simulation

// Invariant 2, of rollbacks: nothing is rolled back that nobody has asked for, not while writes
// are stopped unless they asked for that, and nothing twice. What holds a policy (limits,
// approvals, windows, halts, waves) does not hold people; the lease, held members and the bounds
// of the fleet do.
type rollbackModel struct {
	asks    map[string]bool // by Action; true: also while stopped
	written map[string]int  // by Action that was rolled back
}

func newRollbackModel() rollbackModel {
	return rollbackModel{asks: map[string]bool{}, written: map[string]int{}}
}

func (m *rollbackModel) asked(action string, whileStopped bool) {
	m.asks[action] = m.asks[action] || whileStopped
}

func (m *rollbackModel) sent(w *world, p *process, x write) {
	const invariant = "2 rollbacks"
	whileStopped, asked := m.asks[x.rollbackOf]
	if !asked {
		w.fail(invariant, "%s rolls back %s, and nobody has asked for it", p.name, x.rollbackOf)
	}
	if why := p.told.stops.All + p.told.stops.Policies[x.policy]; why != "" && !whileStopped {
		w.fail(invariant, "%s rolls back %s although it knows of a stop: %s", p.name, x.rollbackOf, why)
	}
	of := w.hub.Peek("actions", "", x.rollbackOf)
	target, _ := of["spec"].(map[string]any)["target"].(map[string]any)
	if is := target["member"]; target["name"] != x.name || is != x.member {
		w.fail(invariant, "%s rolls back %s of %v in %v by a write to %s", p.name, x.rollbackOf, target["name"], is, x.target())
	}
}

func (m *rollbackModel) executed(w *world, x write) {
	w.note("%s is rolled back", x.rollbackOf)
	if m.written[x.rollbackOf]++; m.written[x.rollbackOf] > 1 {
		w.fail("2 rollbacks", "%s has been rolled back %d times", x.rollbackOf, m.written[x.rollbackOf])
	}
}
