package exchange

import "github.com/prometheus/client_golang/prometheus"

// exporterMetrics are those of an exporter.
type exporterMetrics struct {
	streams                                   prometheus.Gauge
	sent, plain, records, states, cut, missed prometheus.Counter
	sequence, log, held                       prometheus.GaugeFunc
}

func newExporterMetrics(x *Exporter) *exporterMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_" + name, Help: help})
	}
	gauge := func(name, help string, f func(*table) float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "federator_exchange_" + name, Help: help}, func() float64 {
			x.mu.Lock()
			defer x.mu.Unlock()
			return f(&x.table)
		})
	}
	return &exporterMetrics{
		streams:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "federator_exchange_importers", Help: "Processes that are told what policies need of the members that are judged here."}),
		sent:     counter("sent_bytes_total", "Bytes sent to other processes, compressed."),
		plain:    counter("sent_plain_bytes_total", "Bytes sent to other processes, before they were compressed."),
		records:  counter("sent_records_total", "Records of objects sent to other processes."),
		states:   counter("sent_states_total", "How often another process was told everything."),
		cut:      counter("importers_cut_total", "Streams to other processes that ended because they did not read, or with an error."),
		missed:   counter("missed_changes_total", "Scopes of which an audit found a change that had not been told. There should be none."),
		sequence: gauge("sequence", "Number of the newest change that other processes are told of.", func(t *table) float64 { return float64(t.sequence) }),
		log:      gauge("log_bytes", "Bytes of changes that are kept for other processes to resume from.", func(t *table) float64 { return float64(t.bytes) }),
		held:     gauge("exported_records", "Records of objects that other processes are told of.", func(t *table) float64 { return float64(t.records) }),
	}
}

func (m *exporterMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.streams, m.sent, m.plain, m.records, m.states, m.cut, m.missed, m.sequence, m.log, m.held}
}

// Describe implements prometheus.Collector.
func (x *Exporter) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range x.metrics.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (x *Exporter) Collect(ch chan<- prometheus.Metric) {
	for _, c := range x.metrics.all() {
		c.Collect(ch)
	}
}
