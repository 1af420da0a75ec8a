package notifications

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of all Notifications.
type metrics struct {
	waiting      *prometheus.GaugeVec
	sent, failed *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "federator_notification_waiting", Help: "Transitions of this process's history that a Notification has not come to yet."}, []string{"notification"}),
		sent:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_notification_sent_total", Help: "Messages and alerts that the sink of a Notification has taken."}, []string{"notification"}),
		failed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_notification_failed_total", Help: "Attempts to send to the sink of a Notification that failed; it is sent again."}, []string{"notification"}),
	}
}

// add adds the series of a Notification: what grows from nothing is seen to grow.
func (m *metrics) add(name string) {
	m.waiting.WithLabelValues(name)
	m.sent.WithLabelValues(name)
	m.failed.WithLabelValues(name)
}

func (m *metrics) remove(name string) {
	m.waiting.DeleteLabelValues(name)
	m.sent.DeleteLabelValues(name)
	m.failed.DeleteLabelValues(name)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.waiting, m.sent, m.failed} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.waiting, m.sent, m.failed} {
		c.Collect(ch)
	}
}
