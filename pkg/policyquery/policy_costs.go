package policyquery

import (
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Times between the samples of costHistory, and the longest time that costs are of.
const (
	costStep = 10 * time.Second
	costKept = 5 * time.Minute
)

// costHistory keeps what evaluations had taken at some times of the last minutes, so that it can be said what they
// take now, whoever asks when. The zero value is ready to use.
type costHistory struct {
	mu      sync.Mutex
	samples []costSample // the oldest first
}

type costSample struct {
	at       time.Time
	byPolicy map[string]costTotal
}

type costTotal struct{ evaluations, nanoseconds int64 }

func costTotals(s *policy.State) map[string]costTotal {
	totals := map[string]costTotal{}
	for b := range s.Bindings() {
		health, _ := s.Health(b.Name)
		totals[b.Name] = costTotal{health.Evaluations, health.Nanoseconds}
	}
	return totals
}

// sample keeps what a state, which is of now, says.
func (h *costHistory) sample(s *policy.State, now time.Time) {
	totals := costTotals(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = slices.DeleteFunc(h.samples, func(c costSample) bool { // the clock may have gone back
		return now.Sub(c.at) > costKept || c.at.After(now)
	})
	if n := len(h.samples); n == 0 || now.Sub(h.samples[n-1].at) >= costStep {
		h.samples = append(h.samples, costSample{now, totals})
	}
}

// rates returns what policies have taken between the oldest sample of the last minutes and a state, which is of
// now. Policies that are not in both are left out.
func (h *costHistory) rates(s *policy.State, now time.Time) map[string]PolicyCost {
	oldest, ok := h.oldest(now)
	if !ok {
		return nil
	}
	seconds := now.Sub(oldest.at).Seconds()
	out := map[string]PolicyCost{}
	for name, total := range costTotals(s) {
		before, ok := oldest.byPolicy[name]
		if n := total.evaluations - before.evaluations; ok && n >= 0 && total.nanoseconds >= before.nanoseconds {
			cost := PolicyCost{CPUShare: float64(total.nanoseconds-before.nanoseconds) / 1e9 / seconds, EvaluationsPerSecond: float64(n) / seconds, WindowSeconds: int(seconds)}
			if n > 0 {
				cost.PerEvaluationMicros = float64(total.nanoseconds-before.nanoseconds) / 1e3 / float64(n)
			}
			out[name] = cost
		}
	}
	return out
}

// oldest returns the oldest sample of the last minutes that is old enough to say something.
func (h *costHistory) oldest(now time.Time) (costSample, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.samples {
		if age := now.Sub(c.at); age >= costStep && age <= costKept {
			return c, true
		}
	}
	return costSample{}, false
}
