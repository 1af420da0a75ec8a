package remediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/remediate/internal/bounds"
)

// Stops are what must not be written to. Each value says who has stopped it, since when and
// why; an empty one counts as a stop, too.
type Stops struct {
	All      string            // everything; "" for no such stop. Unknown stops are one of everything.
	Policies map[string]string // by name
	Members  map[string]string
	Sources  map[string]string // PolicySources, by name
}

// StoppedFor returns which stop holds writes for a policy of a source ("" for none) to a member
// ("" for any), "" if none does.
func (d *Dispatcher) StoppedFor(policy, source, member string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(d.stops.policy(policy, source), d.stops.member(member))
}

// collectStops sends a metric of each stop.
func (d *Dispatcher) collectStops(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	send := func(scope, name string) {
		ch <- prometheus.MustNewConstMetric(descStops, prometheus.GaugeValue, 1, scope, name)
	}
	if d.stops.All != "" {
		send("all", "")
	}
	for scope, names := range map[string]map[string]string{"policy": d.stops.Policies, "member": d.stops.Members, "source": d.stops.Sources} {
		for name := range names {
			send(scope, name)
		}
	}
}

func (s Stops) clone() Stops {
	s.Policies, s.Members, s.Sources = maps.Clone(s.Policies), maps.Clone(s.Members), maps.Clone(s.Sources)
	return s
}

// policy returns why nothing is written for a policy of a source, "" if something may be.
func (s *Stops) policy(name, source string) string {
	if s.All != "" {
		return "all actions are stopped: " + s.All
	}
	if why, ok := s.Policies[name]; ok {
		return "the policy is stopped: " + cmp.Or(why, "for no given reason")
	}
	if why, ok := s.Sources[source]; ok && source != "" {
		return "its source " + source + " is stopped: " + cmp.Or(why, "for no given reason")
	}
	return ""
}

// member returns why nothing is written to a member, "" if something may be.
func (s *Stops) member(name string) string {
	if why, ok := s.Members[name]; ok {
		return "member " + name + " is stopped: " + cmp.Or(why, "for no given reason")
	}
	return ""
}

// Bounds bound writes to the whole fleet, whatever policies say.
type Bounds = bounds.Bounds

// checkAway returns why nothing is written to any member, "" if something may be. It is asked
// without the lock.
func (d *Dispatcher) checkAway() string {
	if d.opts.Away == nil || d.opts.Bounds.MaxAway == 0 {
		return "" // counting members takes time
	}
	away, members := d.opts.Away()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bounds.Away(away, members)
}

// WaitingForRoom is why corrections are not written while the hub has as many Actions as it may
// have: each has to be recorded before. Rollbacks, which people request, are written.
const WaitingForRoom = "the hub has as many Actions as it may have: corrections go on when enough old ones have been deleted"

// checkRoom returns why no correction begins, "" if one may be recorded.
func (d *Dispatcher) checkRoom() string {
	if d.opts.quota.Exhausted() {
		return WaitingForRoom
	}
	return ""
}

// collectRoom sends metrics of the Actions that there are, once they are known.
func (d *Dispatcher) collectRoom(ch chan<- prometheus.Metric) {
	used, most, known := d.opts.quota.Used()
	if !known {
		return
	}
	send := func(desc *prometheus.Desc, n float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n)
	}
	send(descRecorded, float64(used.Actions))
	send(descRecordedBytes, float64(used.Bytes))
	send(descRecordedLimit, float64(most.Actions))
	send(descRecordedBytesLimit, float64(most.Bytes))
	send(descExhausted, boolGauge(d.opts.quota.Exhausted()))
}

// countEndedLocked counts a correction for the bound of failures. Beyond it nothing is written
// any more: at once in this process, and everywhere as soon as that is recorded.
func (d *Dispatcher) countEndedLocked(a *Action, err error) {
	failed := err != nil || a.Phase == v1alpha1.PhaseFailed
	if errors.Is(err, ErrNotNow) || !failed && a.Phase != v1alpha1.PhaseSucceeded && a.Phase != v1alpha1.PhaseContended {
		return
	}
	why := d.bounds.Ended(d.opts.Clock(), failed)
	if why == "" || d.failing != "" {
		return
	}
	d.failing = why
	d.opts.Logger.Error("too many corrections failed, stopping everything", "reason", why)
	d.failed.Fire()
}

// stopLoop records that everything is stopped since too many corrections failed. That lasts
// until a person resumes.
func (d *Dispatcher) stopLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.failed:
		}
		d.mu.Lock()
		why := d.failing
		d.mu.Unlock()
		for {
			err := d.opts.StopAll(ctx, why)
			if err == nil {
				break
			}
			d.opts.Logger.Error("recording the stop failed, nothing is written meanwhile", "error", err)
			if sleep.For(ctx, time.Second) != nil {
				return
			}
		}
		d.mu.Lock()
		d.failing = "" // the recorded stop holds from now on
		d.mu.Unlock()
		d.trigger()
	}
}

// refuseFleetLocked returns why nothing is written to any member, "" if something may be.
func (d *Dispatcher) refuseFleetLocked() string {
	if d.failing != "" {
		return "all actions are stopped: " + d.failing
	}
	return ""
}

// validateBounds returns what is wrong with the bounds of the fleet.
func (o *Options) validateBounds() error {
	if err := o.Bounds.Validate(); err != nil {
		return fmt.Errorf("remediate: bounds: %w", err)
	}
	switch {
	case o.Bounds.MaxAway > 0 && o.Away == nil:
		return errors.New("remediate: bounds: Away is required for MaxAway")
	case (o.Bounds.Failures > 0 || o.Bounds.MaxFailed > 0) && o.StopAll == nil:
		return errors.New("remediate: bounds: StopAll is required for bounds of failures")
	}
	return nil
}
