package notify

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of all receivers.
type metrics struct {
	pending               *prometheus.GaugeVec
	sent, failed, dropped *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"receiver"})
	}
	return &metrics{
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "federator_notices_pending", Help: "Events that wait to be sent to a receiver; only the leader sends."}, []string{"receiver"}),
		sent:    counter("federator_notices_sent_total", "Events that a receiver has taken."),
		failed:  counter("federator_notices_failed_total", "Attempts to send an event that failed; it is sent again."),
		dropped: counter("federator_notices_dropped_total", "Events that a receiver did not take for a week."),
	}
}

// addReceiver adds the series of a receiver: what grows from nothing is seen to grow.
func (m *metrics) addReceiver(receiver string) {
	m.waiting(receiver, 0)
	for _, c := range []*prometheus.CounterVec{m.sent, m.failed, m.dropped} {
		c.WithLabelValues(receiver)
	}
}

func (m *metrics) waiting(receiver string, n int) {
	m.pending.WithLabelValues(receiver).Set(float64(n))
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.pending, m.sent, m.failed, m.dropped} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.pending, m.sent, m.failed, m.dropped} {
		c.Collect(ch)
	}
}
