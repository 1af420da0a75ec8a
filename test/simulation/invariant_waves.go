package simulation

import "time"

// Invariant 3: the first write to the second wave is not sent before every target of the
// first is written or accounted for, the process has read each version that was written
// there, the member is within reach and not held, and what was written has been healthy for
// the whole soak.
type waveModel struct {
	first map[string][]wroteCanary // of the first wave, by policy and generation
	begun map[string]bool          // the second wave, by policy and generation
}

type wroteCanary struct {
	name     string
	revision uint64 // after the write
	at       time.Time
}

func newWaveModel() waveModel {
	return waveModel{first: map[string][]wroteCanary{}, begun: map[string]bool{}}
}

func (m *waveModel) written(w *world, p *process, x write) {
	if wish := p.told.policies[x.policy]; wish != nil && x.member == w.members[0].name {
		_, revision := w.members[0].server.Since("deployments", 1<<62)
		m.first[wish.key()] = append(m.first[wish.key()], wroteCanary{x.name, revision, time.Now()})
	}
}

func (m *waveModel) sent(w *world, p *process, x write) {
	const invariant = "3 waves"
	wish := p.told.policies[x.policy]
	canary := w.members[0]
	if wish == nil || !wish.waves || x.member == canary.name || m.begun[wish.key()] {
		return
	}
	m.begun[wish.key()] = true
	if why := p.told.held[canary.name]; why != "" {
		w.fail(invariant, "%s writes to %s while the first wave's member is held: %s", p.name, x.target(), why)
	}
	if canary.away {
		w.fail(invariant, "%s writes to %s while the first wave's member is away", p.name, x.target())
	}
	healthy := map[string]bool{}
	for _, o := range canary.server.ObjectsAt("deployments", p.read[canary.name]) {
		name := o["metadata"].(map[string]any)["name"].(string)
		if healthy[name] = reconciled(o); violates(x.policy, o) {
			w.fail(invariant, "%s writes to %s, and %s of the first wave is not corrected", p.name, x.target(), name)
		}
	}
	for _, c := range m.first[wish.key()] {
		is, exists := healthy[c.name]
		switch {
		case p.read[canary.name] < c.revision:
			w.fail(invariant, "%s writes to %s before it has read what was written to %s", p.name, x.target(), c.name)
		case exists && !is:
			w.fail(invariant, "%s writes to %s while %s of the first wave is not healthy", p.name, x.target(), c.name)
		case time.Since(c.at) < wish.soak:
			w.fail(invariant, "%s writes to %s %v after %s of the first wave was written, its soak is %v", p.name, x.target(), time.Since(c.at), c.name, wish.soak)
		}
	}
}
