package simulation

import (
	"maps"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// owners are the targets that GitOps controllers manage, and the members of which that is not
// known.
type owners struct {
	version int
	targets map[string]bool
	unknown map[string]bool
}

func newOwners() owners { return owners{targets: map[string]bool{}, unknown: map[string]bool{}} }

// offerOwners offers that targets come to be managed, or no longer are, and that processes learn
// of it.
func (w *world) offerOwners(add func(int, string, func())) {
	flip := func(set map[string]bool, name string) {
		if set[name] = !set[name]; !set[name] {
			delete(set, name)
		}
		w.owners.version++
	}
	add(3, "owner", func() {
		m := w.members[w.choices.below(len(w.members))]
		target := m.name + " d" + string(rune('0'+w.choices.below(3)))
		flip(w.owners.targets, target)
		w.note("%s: managed by GitOps %t", target, w.owners.targets[target])
	})
	add(1, "owner", func() {
		m := w.members[w.choices.below(len(w.members))]
		flip(w.owners.unknown, m.name)
		w.note("%s: unknown what GitOps manages %t", m.name, w.owners.unknown[m.name])
	})
	for _, p := range w.processes {
		w.offerOwnersTo(p, add)
	}
}

func (w *world) offerOwnersTo(p *process, add func(int, string, func())) {
	if p.owners.version < w.owners.version && !p.paused {
		add(10, "learn owners", func() { p.learnOwners(); w.note("%s learns what GitOps manages", p.name) })
	}
}

func (p *process) learnOwners() {
	w := p.world
	w.mu.Lock()
	p.owners = owners{w.owners.version, maps.Clone(w.owners.targets), maps.Clone(w.owners.unknown)}
	w.mu.Unlock()
	p.dispatcher.OwnersChanged()
}

// owner returns who manages a target, as far as the process knows.
func (p *process) owner(target policy.Ref) (of remediate.Ownership) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if p.owners.targets[target.Member+" "+target.Name] {
		of.Owner = "Application shop"
	}
	if p.owners.unknown[target.Member] {
		of.Unknown = "not all Applications are known"
	}
	return of
}

// protected reports whether a person has annotated an object so that it is not written.
func protected(o map[string]any) bool {
	annotations, _ := o["metadata"].(map[string]any)["annotations"].(map[string]any)
	return annotations["federator.dev/protect"] != nil
}

// Invariant 2, of protection and owners: nothing is sent to what a process knows to be managed by
// others, or does not know not to be, and what its owner has protected is never changed.
type ownerModel struct{}

func (ownerModel) sent(w *world, p *process, x write) {
	if p.owners.targets[x.target()] || p.owners.unknown[x.member] {
		w.fail("2 owner", "%s writes to %s, which is managed by others, or that is not known", p.name, x.target())
	}
}

// written is told of the object as it was before a write.
func (ownerModel) written(w *world, x write, before map[string]any) {
	if before != nil && protected(before) {
		w.fail("2 protected", "%s is written, and it is protected", x.target())
	}
}

// others reports whether a target is not federator's to write.
func (o *owners) others(target string, object map[string]any) bool {
	return o.targets[target] || protected(object)
}
