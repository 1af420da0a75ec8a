package remediate

import (
	"cmp"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
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
