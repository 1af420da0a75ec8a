package simulation

import (
	"errors"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/pkg/remediate"
)

// offerPeople offers what people do.
func (w *world) offerPeople(add func(int, string, func())) {
	want := w.want
	names := slices.Sorted(maps.Keys(w.policies))
	drawn := func() string { return names[w.choices.below(len(names))] }
	add(1, "suspend", func() {
		x := w.policies[drawn()]
		want(func() { x.suspended = !x.suspended })
		w.note("people: %v", x)
	})
	add(1, "edit", func() {
		name := drawn()
		next := w.drawEdit(name)
		want(func() { w.policies[name] = next })
		w.note("people: %v", next)
	})
	add(1, "delete", func() {
		x := w.policies[drawn()]
		want(func() { x.gone, x.version = !x.gone, x.version+1 })
		w.note("people: %v", x)
	})
	add(1, "stop", func() {
		want(func() { w.stops.All = toggled(w.stops.All) })
		w.note("people: stop %q", w.stops.All)
	})
	add(1, "stop a policy", func() {
		name := drawn()
		want(func() { toggle(w.stops.Policies, name) })
		w.note("people: stopped policies %v", w.stops.Policies)
	})
	add(1, "hold a member", func() {
		m := w.members[w.choices.below(len(w.members))]
		want(func() { toggle(w.held, m.name) })
		w.note("people: held members %v", w.held)
	})
	w.offerVersions(add)
	w.offerApprovals(add)
	w.offerCeilings(add)
	w.offerOwners(add)
	for _, p := range w.processes {
		w.offerRollbacks(p, add)
		if p.paused || !p.leads() || !p.recovered() {
			continue
		}
		for _, name := range names {
			if s, ok := p.dispatcher.Status(name); ok && w.mayAcknowledge(s.Halted) {
				add(5, "acknowledge", func() { w.acknowledge(p, name, s.Halted.ID) })
			}
		}
	}
}

// want changes what people want.
func (w *world) want(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	change()
}

func (w *world) acknowledge(p *process, name, halt string) {
	s, ok := p.dispatcher.Status(name)
	if !ok || s.Halted == nil {
		return
	}
	err := p.dispatcher.Acknowledge(name, halt, "ann")
	w.note("people: acknowledge halt %s of %s by %s: %v", halt, name, p.name, err)
	if err == nil || errors.Is(err, remediate.ErrNotNow) {
		w.unready[halt] = time.Now()
	}
	if err == nil {
		w.model.acknowledged(w, p, name, s.Halted)
	}
}

// mayAcknowledge reports whether people acknowledge a halt now: not twice at a time while what
// waits because of it is being recorded, and not what has begun again at the same instant.
func (w *world) mayAcknowledge(h *remediate.Halt) bool {
	return h != nil && (w.unready[h.ID].IsZero() || w.unready[h.ID].Before(time.Now()))
}

func toggled(why string) string {
	if why == "" {
		return "a person asked for it"
	}
	return ""
}

func toggle(set map[string]string, name string) {
	if why := toggled(set[name]); why != "" {
		set[name] = why
	} else {
		delete(set, name)
	}
}
