package simulation

import (
	"context"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// fleetBounds bound writes to all members together, as every process is configured. Zero values
// bound nothing.
type fleetBounds struct {
	rate     float64 // requests a second
	members  int     // that are written to at once
	away     float64 // percent of the members: with more away nothing is written
	failures int     // corrections that fail within failureWindow: with more everything stops
	targets  int     // of all policies within an hour
}

const failureWindow = 10 * time.Minute

func drawBounds(c *choices) (b fleetBounds) {
	if !c.oneIn(3) {
		return b
	}
	b.rate, b.members = []float64{0, 1, 0.2}[c.below(3)], c.below(3)
	b.away, b.failures = []float64{0, 40, 60}[c.below(3)], []int{0, 1, 1, 2}[c.below(4)]
	b.targets = []int{0, 4, 2}[c.below(3)]
	return b
}

// configure sets what every process has of the bounds.
func (b fleetBounds) configure(p *process, o *remediate.Options) {
	o.Bounds = remediate.Bounds{WritesPerSecond: b.rate, Members: b.members, MaxAway: b.away, Failures: b.failures, FailureWindow: failureWindow}
	o.Fleet, o.FleetWindow = remediate.Limit{Count: b.targets}, time.Hour
	o.StopAll, o.Away, o.Corrected = p.stopAll, p.countAway, p.corrected
}

// drawDenials draws whether members deny writes from the beginning: more often where failures
// are bounded.
func (w *world) drawDenials() {
	rarely := 12
	if w.bounds.failures > 0 {
		rarely = 2
	}
	for _, m := range w.members {
		m.denies = w.choices.oneIn(rarely)
	}
}

// stopAll stops everything for the process, which knows that at once.
func (p *process) stopAll(ctx context.Context, reason string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	w.stops.All, p.told.stops.All, p.tripped = reason, reason, true
	p.dispatcher.SetStops(p.told.stops)
	return nil
}

// countAway returns how many members are away as far as the process knows, and how many there are.
func (p *process) countAway() (away, members int) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	for _, is := range p.away {
		if is {
			away++
		}
	}
	return away, len(p.world.members)
}

// corrected is called with each correction that has ended. That a process ended is no failure of
// a member.
func (p *process) corrected(a *remediate.Action) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	ended := strings.HasPrefix(a.Message, "federator stopped") || a.Message == "recorded, but not written"
	if a.Phase == v1alpha1.PhaseFailed && a.RollbackOf == "" && !ended {
		p.failures = append(p.failures, time.Now())
	}
}
