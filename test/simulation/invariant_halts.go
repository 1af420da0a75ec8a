package simulation

import (
	"fmt"
	"maps"
	"slices"
)

// Invariant 4: a halt ends by an acknowledgement of that halt, or by a person's change of the
// policy; never by a restart, a failover or a policy that goes and comes. It begins when it
// is recorded on the hub, and nothing is sent for its policy until it has ended there.
type haltModel struct {
	recorded map[string]recordedHalt // by ID
	acked    map[string]bool         // by ID
	editions map[string][]wish       // all that people have wanted of a policy, the oldest first
	at       uint64                  // the hub's last change of halts that was looked at
}

type recordedHalt struct {
	policy     string
	generation string             // of the policy, when it was halted
	version    int                // of the policy, when the halt was seen first
	over       func() []allowance // what its acknowledgement lets pass; of whole processes
}

func newHaltModel() haltModel {
	return haltModel{recorded: map[string]recordedHalt{}, acked: map[string]bool{}, editions: map[string][]wish{}}
}

// haltsOf returns the halts of a policy that the hub has, by ID.
func (w *world) haltsOf(policy string) map[string]recordedHalt {
	o := w.hub.Peek("policystates", "", policy)
	status, _ := o["status"].(map[string]any)
	halts, _ := status["halts"].([]any)
	byID := map[string]recordedHalt{}
	for _, h := range halts {
		h := h.(map[string]any)
		byID[fmt.Sprint(h["id"])] = recordedHalt{policy, fmt.Sprint(h["generation"]), w.policies[policy].version, nil}
	}
	return byID
}

func (m *haltModel) sent(w *world, p *process, x write) {
	if halts := w.haltsOf(x.policy); len(halts) > 0 {
		w.fail("4 halts", "%s writes to %s for %s, which is halted: %v", p.name, x.target(), x.policy, halts)
	}
}

// check compares the halts on the hub with those of before.
func (m *haltModel) check(w *world) {
	for name, x := range w.policies {
		if all := m.editions[name]; len(all) == 0 || all[len(all)-1].version != x.version {
			m.editions[name] = append(all, *x)
		}
	}
	at := w.hub.LastChange("policystates")
	if at == m.at {
		return
	}
	m.at = at
	present := map[string]recordedHalt{}
	for name := range w.policies {
		maps.Copy(present, w.haltsOf(name))
	}
	was := m.recorded
	m.recorded = present
	for id, h := range was {
		if _, still := present[id]; still {
			m.recorded[id] = h
		} else if !m.acked[id] && !m.changed(h) {
			w.fail("4 halts", "halt %s of %s has ended, and nobody has acknowledged it or changed the policy", id, h.policy)
		}
	}
}

// changed reports whether people have wanted the policy to correct something else since a halt
// began. To delete it, or to observe for a while, ends no halt.
func (m *haltModel) changed(h recordedHalt) bool {
	return slices.ContainsFunc(m.editions[h.policy], func(x wish) bool {
		return x.version >= h.version && x.enforced && !x.gone && x.key() != h.generation
	})
}
