package exchange

import "github.com/prometheus/client_golang/prometheus"

// exporterMetrics are those of an exporter.
type exporterMetrics struct {
	streams                                   prometheus.Gauge
	sent, plain, records, states, cut, missed prometheus.Counter
	sequence, log, held                       prometheus.GaugeFunc
}

func newExporterMetrics(x *Exporter) *exporterMetrics {
	of := func(f func(*table) float64) func() float64 {
		return func() float64 {
			x.mu.Lock()
			defer x.mu.Unlock()
			return f(&x.table)
		}
	}
	return &exporterMetrics{
		streams:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "federator_exchange_importers", Help: "Processes that are told what policies need of the members that are judged here."}),
		sent:     prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_sent_bytes_total", Help: "Bytes sent to other processes, compressed."}),
		plain:    prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_sent_plain_bytes_total", Help: "Bytes sent to other processes, before they were compressed."}),
		records:  prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_sent_records_total", Help: "Records of objects sent to other processes."}),
		states:   prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_sent_states_total", Help: "How often another process was told everything."}),
		cut:      prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_importers_cut_total", Help: "Streams to other processes that ended because they did not read, or with an error."}),
		missed:   prometheus.NewCounter(prometheus.CounterOpts{Name: "federator_exchange_missed_changes_total", Help: "Scopes of which an audit found a change that had not been told. There should be none."}),
		sequence: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "federator_exchange_sequence", Help: "Number of the newest change that other processes are told of."}, of(func(t *table) float64 { return float64(t.sequence) })),
		log:      prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "federator_exchange_log_bytes", Help: "Bytes of changes that are kept for other processes to resume from."}, of(func(t *table) float64 { return float64(t.bytes) })),
		held:     prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "federator_exchange_exported_records", Help: "Records of objects that other processes are told of."}, of(func(t *table) float64 { return float64(t.records) })),
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
