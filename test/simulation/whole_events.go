package simulation

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
)

// options are what may happen next, the most ordinary first.
func (w *whole) options() (all []option) {
	add := func(weight int, name string, do func()) {
		if weight *= w.rate(name); weight > 0 {
			all = append(all, option{weight, name, do})
		}
	}
	for _, p := range w.processes {
		if p.paused {
			continue
		}
		add(20, "serve", func() { w.serve(p) })
		for _, r := range p.link.waiting() {
			if !r.hangs {
				add(10, "answer", func() { w.answer(p, r) })
				add(1, "fault", func() { w.fault(p, r, w.choices.below(8)) })
			}
		}
		for _, resource := range p.pending() {
			add(5, "deliver", func() { w.deliver(p, resource, 1+w.choices.below(3)) })
		}
		if o := p.open(); len(o) > 0 {
			add(1, "cut", func() { w.cut(p) })
		}
		w.offerReads(p, add)
	}
	add(30, "time", func() {
		w.pass([]time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[w.choices.below(3)])
		w.note("time passes")
	})
	w.offerFleet(add)
	w.offerWishes(add)
	add(2, "commit", func() { w.commit(w.choices.below(6)) })
	add(1, "git away", func() {
		w.gitAway = !w.gitAway
		w.note("git: away %t", w.gitAway)
	})
	w.offerWhole(add)
	for _, r := range w.late {
		add(3, "late", func() { w.executeLate(r) })
	}
	return all
}

// cut ends a watch of a process; the hub may have forgotten what it was about to tell.
func (w *whole) cut(p *process) {
	o := p.open()
	watch := o[w.choices.below(len(o))]
	if w.choices.oneIn(4) {
		w.hub.Forget()
	}
	w.note("%s: its watch of %s ends", p.name, watch.Resource())
	watch.Cut(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})
}

// offerWhole offers that processes end, pause and start.
func (w *whole) offerWhole(add func(int, string, func())) {
	if len(w.processes) < 3 {
		add(1, "start", func() { w.addWhole() })
	}
	if len(w.processes) == 0 {
		add(20, "restart", func() { w.addWhole() })
	}
	for _, p := range w.processes {
		add(1, "crash", func() { w.crash(p) })
		add(1, "pause", func() {
			p.paused = !p.paused
			w.note("%s: paused %t", p.name, p.paused)
		})
		if p.paused {
			add(10, "resume", func() {
				p.paused = false
				w.note("%s: goes on", p.name)
			})
		}
	}
}

// offerWishes offers what people do on the hub.
func (w *whole) offerWishes(add func(int, string, func())) {
	drawn := func() string { return wholeNames[w.choices.below(len(wholeNames))] }
	add(2, "edit", func() {
		name := drawn()
		w.put(name, w.drawSpec(name))
	})
	add(2, "suspend", func() {
		name := drawn()
		if o := w.hub.Object(v1alpha1.FleetPolicies, "", name); o != nil {
			spec := o["spec"].(map[string]any)
			spec["suspend"] = spec["suspend"] != true
			w.put(name, spec)
		}
	})
	add(1, "delete", func() {
		name := drawn()
		w.note("people: FleetPolicy %s is deleted", name)
		w.hub.Change(v1alpha1.FleetPolicies, "", name, "person", func(map[string]any) map[string]any { return nil })
		w.policies[name].version++
	})
	add(1, "stop", func() { w.toggleStop("") })
	add(1, "stop a policy", func() { w.toggleStop(drawn()) })
	add(1, "hold a member", func() {
		m := w.members[w.choices.below(len(w.members))]
		w.mu.Lock()
		toggle(w.held, m.name)
		for _, p := range w.processes {
			p.told.held = maps.Clone(w.held)
		}
		w.mu.Unlock()
		w.note("people: held members %v", w.held)
	})
	for _, name := range wholeNames {
		for _, id := range slices.Sorted(maps.Keys(w.haltsOf(name))) {
			add(4, "acknowledge", func() { w.acknowledgeHalt(name, id) })
			add(1, "acknowledge another", func() { w.acknowledgeHalt(name, "another-"+id) })
		}
	}
}

// toggleStop makes or removes the ConfigMap that stops a policy, or everything.
func (w *whole) toggleStop(policy string) {
	name, data := "federator-stop", map[string]any{"reason": "a person asked for it"}
	if policy != "" {
		name += "-policy-" + policy
		data["scope"], data["name"] = "policy", policy
	}
	w.hub.Change("configmaps", hubNamespace, name, "person", func(o map[string]any) map[string]any {
		w.note("people: stop %s: %t", name, o == nil)
		if o != nil {
			return nil
		}
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data}
	})
}

// acknowledgeHalt acknowledges a halt by the annotation of a FleetPolicy.
func (w *whole) acknowledgeHalt(name, id string) {
	w.hub.Change(v1alpha1.FleetPolicies, "", name, "ann", func(o map[string]any) map[string]any {
		if o == nil {
			return nil
		}
		meta := o["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		if annotations[api.AcknowledgeKey] == id {
			return o
		}
		w.note("people: acknowledge halt %s of %s", id, name)
		w.acked[id] = true
		meta["annotations"] = merged(annotations, api.AcknowledgeKey, id)
		return o
	})
}

// acknowledgeAll acknowledges the halts that there are.
func (w *whole) acknowledgeAll() {
	for _, name := range wholeNames {
		for _, id := range slices.Sorted(maps.Keys(w.haltsOf(name))) {
			w.acknowledgeHalt(name, id)
			break // one at a time
		}
	}
}

// content is what a commit has.
type content struct {
	hash  string
	files map[string]string
	bad   bool // it must not become active
}

// commit adds a commit: good, bad or reverted.
func (w *whole) commit(how int) {
	both := map[string]string{"replicas.rego": replicas, "tier.rego": tier}
	next := content{files: both}
	switch how {
	case 1:
		both["tier.rego"] += fmt.Sprintf("\n# %d\n", w.step)
	case 2:
		both["tier.rego"], next.bad = "package tier\n\nviolation {", true
	case 3:
		delete(both, "tier.rego")
	case 4:
		next.files, next.bad = map[string]string{"README": "nothing"}, true
	case 5:
		next = w.good
	}
	next.hash = w.git.commit(next.files)
	w.newest = next
	if !next.bad {
		w.good = next
	}
	for _, x := range w.policies {
		x.version++
	}
	w.note("git: commit %s (%d)", next.hash[:8], how)
}
