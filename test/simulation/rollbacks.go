package simulation

import (
	"federator.dev/federator/pkg/remediate"
)

// offerRollbacks offers that a person rolls back what was written, one Action at a time.
func (w *world) offerRollbacks(p *process, add func(int, string, func())) {
	w.mu.Lock()
	busy := p.rollingBack
	w.mu.Unlock()
	if busy || p.paused || !p.leads() || !p.recovered() {
		return
	}
	done := w.done()
	if len(done) == 0 {
		return
	}
	add(20, "roll back", func() {
		name, whileStopped := done[w.choices.below(len(done))], w.choices.oneIn(2)
		w.note("people: roll back %s by %s, also while stopped %t", name, p.name, whileStopped)
		w.model.rollbacks.asked(name, whileStopped)
		p.rollBack(name, remediate.RollbackRequest{WhileStopped: whileStopped, Reason: "a person asked for it"})
	})
}

// done returns the Actions that have succeeded, of policies.
func (w *world) done() (names []string) {
	actions, _ := w.hub.Objects("actions")
	for _, o := range actions {
		spec := o["spec"].(map[string]any)
		if status, _ := o["status"].(map[string]any); spec["rollbackOf"] == nil && status["phase"] == "Succeeded" {
			names = append(names, o["metadata"].(map[string]any)["name"].(string))
		}
	}
	return names
}

// rollBack begins a rollback.
func (p *process) rollBack(name string, r remediate.RollbackRequest) {
	busy := func(is bool) {
		p.world.mu.Lock()
		defer p.world.mu.Unlock()
		p.rollingBack = is
	}
	busy(true)
	p.ended.Go(func() {
		defer busy(false)
		_, _ = p.dispatcher.RollBack(p.ctx, name, r) // what becomes of it is seen on the hub
	})
}
