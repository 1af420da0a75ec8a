package remediate

import (
	"fmt"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

// waveProgress is the progress of a policy's waves.
type waveProgress struct {
	generation string
	wave       int
	phase      v1alpha1.WavePhase
	started    time.Time
	written    map[policy.Ref]Written // by the current wave
	unhealthy  int
}

func (p *waveProgress) restart(generation string, now time.Time) {
	*p = waveProgress{generation: generation, phase: v1alpha1.WaveWriting, started: now, written: map[policy.Ref]Written{}}
}

// reaches reports whether a member may be written to: it is in the current wave or an
// earlier one.
func (p *waveProgress) reaches(waves []Wave, member string) bool {
	if len(waves) == 0 {
		return true
	}
	for i := 0; i <= p.wave && i < len(waves); i++ {
		if waves[i].Members[member] {
			return true
		}
	}
	return false
}

// advance continues from a wave whose corrections are done. It returns why the policy must
// be halted, or when to advance again.
func (p *waveProgress) advance(waves []Wave, remaining int, health func(policy.Ref) Health, now time.Time) (halt string, again time.Time) {
	if len(waves) == 0 || p.phase == v1alpha1.WaveDone {
		return "", time.Time{}
	}
	if remaining > 0 {
		if p.phase != v1alpha1.WaveWriting {
			p.phase, p.started = v1alpha1.WaveWriting, now
		}
		return "", time.Time{}
	}
	if p.phase == v1alpha1.WaveWriting {
		p.phase, p.started = v1alpha1.WaveSoaking, now
	}
	w := &waves[p.wave]
	degraded := p.checkHealth(w.Require, health)
	soaked, timeout := p.started.Add(w.Soak), p.started.Add(max(w.Timeout, w.Soak))
	switch {
	case degraded.Name != "":
		return fmt.Sprintf("wave %q: %s is Degraded", w.Name, degraded), time.Time{}
	case p.unhealthy > 0 && !now.Before(timeout):
		return fmt.Sprintf("wave %q: %d objects are not healthy after %v", w.Name, p.unhealthy, timeout.Sub(p.started)), time.Time{}
	case p.unhealthy > 0:
		return "", now.Add(time.Second)
	case now.Before(soaked):
		return "", soaked
	case p.wave == len(waves)-1:
		p.phase, p.started = v1alpha1.WaveDone, now
		return "", time.Time{}
	}
	p.wave++
	p.phase, p.started, p.written, p.unhealthy = v1alpha1.WaveWriting, now, map[policy.Ref]Written{}, 0
	return "", now
}

// checkHealth counts the written objects that do not have the required health, and returns
// one that is Degraded, if any.
func (p *waveProgress) checkHealth(require v1alpha1.HealthRequirement, health func(policy.Ref) Health) (degraded policy.Ref) {
	p.unhealthy = 0
	for target := range p.written {
		switch h := health(target).Status; {
		case require == v1alpha1.RequireNothing:
		case h == Degraded:
			degraded = target
			p.unhealthy++
		case h == Unknown, h == Progressing && require != v1alpha1.RequireNotDegraded:
			p.unhealthy++
		}
	}
	return degraded
}

func (p *waveProgress) status(waves []Wave) *WaveStatus {
	if len(waves) == 0 {
		return nil
	}
	return &WaveStatus{
		Name: waves[p.wave].Name, Number: p.wave + 1, Of: len(waves), Phase: p.phase, Since: p.started, Unhealthy: p.unhealthy,
	}
}
