package history

import "github.com/prometheus/client_golang/prometheus"

// metrics implement prometheus.Collector.
type metrics struct {
	history       *History
	records, lost prometheus.Counter
}

var (
	descUp    = prometheus.NewDesc("federator_history_up", "Whether what happens is recorded.", nil, nil)
	descBytes = prometheus.NewDesc("federator_history_bytes", "Bytes on disk of what is recorded.", nil, nil)
	descSince = prometheus.NewDesc("federator_history_oldest_timestamp_seconds", "When the oldest record that is kept was made, 0 where there is none.", nil, nil)
)

func newMetrics(h *History) *metrics {
	return &metrics{
		history: h,
		records: prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_history_records_total", Help: "Transitions that were recorded."}),
		lost:    prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_history_lost_total", Help: "Transitions that could not be recorded, and are in a gap."}),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descUp
	ch <- descBytes
	ch <- descSince
	m.records.Describe(ch)
	m.lost.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	up, span, since := 1.0, m.history.Span(), 0.0
	if m.history.Failure() != nil {
		up = 0
	}
	if !span.OldestTime.IsZero() {
		since = float64(span.OldestTime.Unix())
	}
	ch <- prometheus.MustNewConstMetric(descUp, prometheus.GaugeValue, up)
	ch <- prometheus.MustNewConstMetric(descBytes, prometheus.GaugeValue, float64(span.Bytes))
	ch <- prometheus.MustNewConstMetric(descSince, prometheus.GaugeValue, since)
	m.records.Collect(ch)
	m.lost.Collect(ch)
}
