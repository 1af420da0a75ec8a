package hub

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descSourceActive  = prometheus.NewDesc("federator_policy_source_active", "1 for a PolicySource of which a commit is active.", []string{"source"}, nil)
	descSourceCurrent = prometheus.NewDesc("federator_policy_source_current",
		"1 for a PolicySource whose newest commit is active, and may be enforced.", []string{"source"}, nil)
	descSourceContact = prometheus.NewDesc("federator_policy_source_contact_age_seconds",
		"Time since a PolicySource's repository last said which commit is newest; before it has, since this process began.", []string{"source"}, nil)
	descSourceSync = prometheus.NewDesc("federator_policy_source_last_sync_timestamp_seconds",
		"When the active commit of a PolicySource became active in this process, in seconds since 1970.", []string{"source"}, nil)
	descSourceFailures = prometheus.NewDesc("federator_policy_source_failures",
		"How often in a row a PolicySource's repository could not be read.", []string{"source"}, nil)
)

// sourceMetrics read one state of the Manager per scrape.
type sourceMetrics struct {
	s     *Sources
	began time.Time
}

// Metrics returns what is to be known of each PolicySource.
func (s *Sources) Metrics() prometheus.Collector { return sourceMetrics{s, time.Now()} }

// Describe implements prometheus.Collector.
func (m sourceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descSourceActive, descSourceCurrent, descSourceContact, descSourceSync, descSourceFailures} {
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
		contact := status.Contact
		if contact.IsZero() {
			contact = m.began
		}
		send(descSourceContact, time.Since(contact).Seconds(), name)
		if active {
			send(descSourceSync, float64(p.Since.UnixMilli())/1000, name)
		}
	}
}
