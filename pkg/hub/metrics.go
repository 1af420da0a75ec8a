package hub

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descSourceActive  = prometheus.NewDesc("federator_policy_source_active", "1 if a commit of the PolicySource is active, else 0.", []string{"source"}, nil)
	descSourceCurrent = prometheus.NewDesc("federator_policy_source_current",
		"1 if the newest commit of the PolicySource is active and may be enforced, else 0.", []string{"source"}, nil)
	descSourceContact = prometheus.NewDesc("federator_policy_source_contact_age_seconds",
		"Seconds since the repository of the PolicySource was last checked successfully, or since the process started if it has not been.", []string{"source"}, nil)
	descSourceSync = prometheus.NewDesc("federator_policy_source_last_sync_timestamp_seconds",
		"Unix time at which the active commit of the PolicySource became active in this process.", []string{"source"}, nil)
	descSourceFailures = prometheus.NewDesc("federator_policy_source_failures",
		"Number of consecutive failures to read the repository of the PolicySource.", []string{"source"}, nil)
	descSourceExternal = prometheus.NewDesc("federator_policy_source_external_unknown",
		"Number of external documents of the PolicySource that are not known, such as too old ones: verdicts that read them are Unknown.", []string{"source"}, nil)
)

var descRolloutPhase = prometheus.NewDesc("federator_policy_rollout_phase",
	"1 for the phase of the version of the FleetPolicy that is to take effect: shadow, waves, promoted or takenback; there is none while no version rolls out.", []string{"policy", "phase"}, nil)

// policyMetrics collects metrics of the FleetPolicies as they are at a scrape.
type policyMetrics struct{ f *FleetPolicies }

// Metrics returns a collector of metrics of each FleetPolicy whose versions roll out.
func (f *FleetPolicies) Metrics() prometheus.Collector { return policyMetrics{f} }

// Describe implements prometheus.Collector.
func (m policyMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- descRolloutPhase }

// Collect implements prometheus.Collector.
func (m policyMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, fp := range m.f.list() {
		if r := fp.Status.Rollout; r != nil && r.Candidate != nil {
			ch <- prometheus.MustNewConstMetric(descRolloutPhase, prometheus.GaugeValue, 1, fp.Name, strings.ToLower(string(r.Candidate.Phase)))
		}
	}
}

// sourceMetrics collects metrics from one state of the Manager per scrape.
type sourceMetrics struct {
	s       *PolicySources
	started time.Time
}

// Metrics returns a collector of metrics of each PolicySource.
func (s *PolicySources) Metrics() prometheus.Collector { return sourceMetrics{s, time.Now()} }

// Describe implements prometheus.Collector.
func (m sourceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descSourceActive, descSourceCurrent, descSourceContact, descSourceSync, descSourceFailures, descSourceExternal} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m sourceMetrics) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64, source string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, source)
	}
	one := map[bool]float64{true: 1}
	state := m.s.opts.Manager.State()
	for name, status := range state.Status {
		p, active := state.Policies[name]
		current, _ := m.s.current(state, name)
		send(descSourceActive, one[active], name)
		send(descSourceCurrent, one[active && current], name)
		send(descSourceFailures, float64(status.Failures), name)
		send(descSourceExternal, float64(m.s.unknownDocuments(name)), name)
		contact := status.Contact
		if contact.IsZero() {
			contact = m.started
		}
		send(descSourceContact, time.Since(contact).Seconds(), name)
		if active {
			send(descSourceSync, float64(p.Since.UnixMilli())/1000, name)
		}
	}
}
