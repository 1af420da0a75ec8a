package coordinator

import (
	"math"
	"time"

	"federator.dev/federator/pkg/shards/internal/assignment"
)

// halfLife is that of what was measured: a member does not move for a burst.
const halfLife = 10 * time.Minute

// load is what was measured of a member, smoothed.
type load struct {
	uid   string
	at    time.Time
	value assignment.Load
}

// measure takes what judges have measured.
func (l *Leader) measure(s *step) {
	for id, p := range s.live {
		r := s.report(id, p.Epoch)
		if r == nil {
			continue
		}
		for name, h := range r.Holds {
			m, is := s.was.Member(name)
			if !is || m.Judge != id || !h.Measured || !h.Ready || !sameUID(h.UID, m.UID) {
				continue
			}
			l.loads[name] = l.loads[name].with(h, r.At)
		}
	}
}

// with returns what was measured, with another measurement.
func (old *load) with(h Hold, at time.Time) *load {
	if old == nil || !sameUID(old.uid, h.UID) {
		return &load{uid: h.UID, at: at, value: h.Load}
	}
	elapsed := at.Sub(old.at)
	if elapsed <= 0 {
		return old
	}
	keep := math.Exp2(-float64(elapsed) / float64(halfLife))
	mix := func(was, is float64) float64 { return keep*was + (1-keep)*is }
	return &load{uid: h.UID, at: at, value: assignment.Load{
		Bytes: mix(old.value.Bytes, h.Load.Bytes), Deltas: mix(old.value.Deltas, h.Load.Deltas), CPU: mix(old.value.CPU, h.Load.CPU),
	}}
}
