package tracing

import "github.com/prometheus/client_golang/prometheus"

// metrics says what is sent and what is not.
type metrics struct {
	t        *Tracer
	traces   *prometheus.CounterVec
	exported prometheus.Counter
	unsent   prometheus.Counter
	dropped  *prometheus.CounterVec
}

var descQueued = prometheus.NewDesc("federator_traces_queued", "Traces and spans of queries that wait to be sent.", nil, nil)

func newMetrics(t *Tracer) *metrics {
	m := &metrics{
		t: t,
		traces: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_traces_total", Help: "Changes of objects that were traced, by why: action, sample, slow or echo.",
		}, []string{"why"}),
		exported: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_trace_spans_sent_total", Help: "Spans that the receiver of traces has taken.",
		}),
		unsent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_trace_spans_failed_total", Help: "Spans that could not be sent, and were dropped.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_traces_dropped_total", Help: "Traces and spans of queries that were dropped, by why: queue (too many waited to be sent), slow (more slow changes in a second than are traced) or echo (more writes than are waited for).",
		}, []string{"why"}),
	}
	for _, why := range []string{"queue", "slow", "echo"} { // so that alerts find the series
		m.dropped.WithLabelValues(why)
	}
	for _, why := range []string{keptAction, keptSample, keptSlow, keptEcho} {
		m.traces.WithLabelValues(why)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descQueued
	m.traces.Describe(ch)
	m.exported.Describe(ch)
	m.unsent.Describe(ch)
	m.dropped.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descQueued, prometheus.GaugeValue, float64(len(m.t.queue)))
	m.traces.Collect(ch)
	m.exported.Collect(ch)
	m.unsent.Collect(ch)
	m.dropped.Collect(ch)
}
