package crash

import (
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// waveChecks have a policy rolled out in two waves, again and again. Nothing is written to the
// second member before all of the first is, and has soaked.
type waveChecks struct {
	*harness

	open bool
	last bool // the last rollout has begun: nobody kills the process that completes it
}

func (w *waveChecks) step() {
	w.Helper()
	if w.open && w.under(waveBinding) != nil {
		return
	}
	if w.open = !w.last; w.last {
		return
	}
	w.last = w.ending
	round, targets := w.wishes.Round+1, 1+w.random.IntN(3)
	for _, m := range w.members {
		for n := range targets {
			w.violate(m, waveBinding, fmt.Sprint(roundPrefix(round), n))
		}
	}
	w.wish(func(w *wishes) { w.Round, w.Targets = round, targets })
}

func (w *waveChecks) settled() error {
	if w.open || !w.last {
		return fmt.Errorf("round %d: %w", w.wishes.Round, w.under(waveBinding))
	}
	return w.recorded()
}

// recorded is an error until the hub has the last rollout as written in all its waves. That is
// recorded once the process has seen the last write, not with the write.
func (w *waveChecks) recorded() error {
	w.Helper()
	s := w.state(waveBinding)
	if s.Rollout == nil || string(s.Rollout.Generation) != generation(w.wishes.Round) || s.Rollout.Phase == v1alpha1.WaveWriting && w.wishes.Round > 0 {
		return fmt.Errorf("the hub has this of the last rollout: %+v", s.Rollout)
	}
	return nil
}

// judge compares the requests that both members have received.
func (w *waveChecks) judge() {
	w.Helper()
	first, second := w.requests(w.members[0], waveBinding), w.requests(w.members[1], waveBinding)
	least := time.Hour
	for round := 1; round <= w.wishes.Round; round++ {
		var written, begun time.Time // the last of the first wave, and the first of the second
		for _, q := range first {
			if strings.HasPrefix(q.target, roundPrefix(round)) && q.completed.After(written) {
				written = q.completed
			}
		}
		for _, q := range second {
			if strings.HasPrefix(q.target, roundPrefix(round)) && (begun.IsZero() || q.received.Before(begun)) {
				begun = q.received
			}
		}
		if written.IsZero() || begun.IsZero() {
			w.Errorf("round %d: the first wave was written at %v, the second from %v on", round, written, begun)
			continue
		}
		least = min(least, begun.Sub(written))
		if begun.Sub(written) < soak {
			w.Errorf("round %d: the second wave was written to %v after the first, whose soak is %v", round, begun.Sub(written), soak)
		}
	}
	if err := w.recorded(); err != nil {
		w.Error(err)
	}
	w.Logf("waves: %d rollouts, %d requests; the second wave began at least %v after the first was written (soak %v)", w.wishes.Round, len(first)+len(second), least.Round(time.Millisecond), soak)
}
