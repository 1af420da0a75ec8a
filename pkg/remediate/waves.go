package remediate

import (
	"fmt"
	"time"

	"federator.dev/federator/pkg/policy"
)

// progress is how far the waves of a binding have come.
type progress struct {
	generation string
	wave       int
	phase      WavePhase
	since      time.Time
	touched    map[policy.Ref]bool // written in the wave
	unhealthy  int
}

func (p *progress) restart(generation string, now time.Time) {
	*p = progress{generation: generation, phase: WaveWriting, since: now, touched: map[policy.Ref]bool{}}
}

// reach reports whether a member may be written to: it is in this wave or an earlier
// one.
func (p *progress) reach(waves []Wave, member string) bool {
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

// advance goes on from a wave of which nothing is left to write. It returns why the
// binding must be halted, or when to look again.
func (p *progress) advance(waves []Wave, left int, health func(policy.Ref) Health, now time.Time) (halt string, again time.Time) {
	if len(waves) == 0 || p.phase == WaveDone {
		return "", time.Time{}
	}
	if left > 0 {
		if p.phase != WaveWriting {
			p.phase, p.since = WaveWriting, now
		}
		return "", time.Time{}
	}
	if p.phase == WaveWriting {
		p.phase, p.since = WaveSoaking, now
	}
	w := &waves[p.wave]
	degraded := policy.Ref{}
	p.unhealthy = 0
	for target := range p.touched {
		switch h := health(target); {
		case h == Degraded && w.Require != RequireNothing:
			degraded = target
			p.unhealthy++
		case h == Progressing && w.Require == RequireHealthy:
			p.unhealthy++
		}
	}
	soaked, late := p.since.Add(w.Soak), p.since.Add(max(w.Timeout, w.Soak))
	switch {
	case degraded.Name != "":
		return fmt.Sprintf("wave %q: %s is Degraded", w.Name, degraded), time.Time{}
	case p.unhealthy > 0 && !now.Before(late):
		return fmt.Sprintf("wave %q: %d objects are not healthy after %v", w.Name, p.unhealthy, late.Sub(p.since)), time.Time{}
	case p.unhealthy > 0:
		return "", now.Add(time.Second)
	case now.Before(soaked):
		return "", soaked
	case p.wave == len(waves)-1:
		p.phase, p.since = WaveDone, now
		return "", time.Time{}
	}
	p.wave++
	p.phase, p.since, p.touched, p.unhealthy = WaveWriting, now, map[policy.Ref]bool{}, 0
	return "", now
}

func (p *progress) status(waves []Wave) *WaveStatus {
	if len(waves) == 0 {
		return nil
	}
	return &WaveStatus{
		Name: waves[p.wave].Name, Number: p.wave + 1, Of: len(waves), Phase: p.phase, Since: p.since, Unhealthy: p.unhealthy,
	}
}
