package exchange

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/interest"
)

// importerMetrics are those of an importer: a few series for each peer.
type importerMetrics struct {
	im    *Importer
	stale prometheus.Gauge

	bytes, records, states, audited, differs, ended *prometheus.CounterVec
	connected, frontier                             *prometheus.GaugeVec
	wanted, held                                    prometheus.GaugeFunc
}

// reasons are why streams end.
var reasons = []string{"again", "bound", "broken", "disagrees", "malformed", "silent"}

func newImporterMetrics(im *Importer) *importerMetrics {
	keys := func(of func() *interest.Set) func() float64 {
		return func() float64 {
			im.mu.Lock()
			set := of()
			im.mu.Unlock()
			return float64(set.Size())
		}
	}
	return &importerMetrics{
		im:        im,
		wanted:    prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "federator_exchange_wanted_keys", Help: "Keys of views and names of objects, by hash, that other processes are asked for; views and kinds of which all is asked for do not count."}, keys(func() *interest.Set { return im.interest.set })),
		held:      prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "federator_exchange_held_keys", Help: "Those of federator_exchange_wanted_keys of which all processes have told all."}, keys(func() *interest.Set { return im.held })),
		stale:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "federator_exchange_stale_members", Help: "Members of other processes that are Stale, since their process does not tell what changes."}),
		bytes:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_exchange_received_bytes_total", Help: "Bytes received from a process, compressed."}, []string{"peer"}),
		records:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_exchange_received_records_total", Help: "Records of objects that a process has told."}, []string{"peer"}),
		states:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_exchange_received_states_total", Help: "How often a process has told everything, since what had changed was not known."}, []string{"peer"}),
		audited:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_exchange_audited_scopes_total", Help: "Scopes that were compared with what a process has."}, []string{"peer"}),
		differs:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_exchange_audit_differences_total", Help: "Scopes that were not what a process has. There should be none."}, []string{"peer"}),
		ended:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "federator_exchange_streams_ended_total", Help: "Streams of a process that ended, by reason."}, []string{"peer", "reason"}),
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "federator_exchange_connected", Help: "Whether a process tells what changes."}, []string{"peer"}),
		frontier:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "federator_exchange_frontier_timestamp_seconds", Help: "When a process had told everything, by its clock."}, []string{"peer"}),
	}
}

func (m *importerMetrics) counters() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.bytes, m.records, m.states, m.audited, m.differs, m.ended}
}

// peerMetrics are those of a peer.
type peerMetrics struct {
	bytes, records, states, audited, differs prometheus.Counter
	frontier                                 prometheus.Gauge
	all                                      *importerMetrics
	id                                       string
}

// of adds the series of a peer.
func (m *importerMetrics) of(id string) *peerMetrics {
	for _, reason := range reasons {
		m.ended.WithLabelValues(id, reason)
	}
	return &peerMetrics{
		bytes: m.bytes.WithLabelValues(id), records: m.records.WithLabelValues(id), states: m.states.WithLabelValues(id),
		audited: m.audited.WithLabelValues(id), differs: m.differs.WithLabelValues(id), frontier: m.frontier.WithLabelValues(id),
		all: m, id: id,
	}
}

// remove removes the series of a peer.
func (m *importerMetrics) remove(id string) {
	for _, c := range m.counters() {
		c.DeletePartialMatch(prometheus.Labels{"peer": id})
	}
	m.frontier.DeleteLabelValues(id)
	m.connected.DeleteLabelValues(id)
}

// ended counts the end of a stream.
func (p *peerMetrics) ended(err error) {
	reason := "broken"
	switch bad := (*MalformedError)(nil); {
	case errors.Is(err, errAgain):
		reason = "again"
	case errors.Is(err, ErrBound):
		reason = "bound"
	case errors.Is(err, ErrDisagree):
		reason = "disagrees"
	case errors.Is(err, ErrSilent):
		reason = "silent"
	case errors.As(err, &bad):
		reason = "malformed"
	}
	p.all.ended.WithLabelValues(p.id, reason).Inc()
}

func (p *peerMetrics) reached(f Frontier) {
	p.frontier.Set(float64(f.Time.UnixMilli()) / 1000)
}

func (m *importerMetrics) collectors() []prometheus.Collector {
	out := []prometheus.Collector{m.stale, m.connected, m.frontier, m.wanted, m.held}
	for _, c := range m.counters() {
		out = append(out, c)
	}
	return out
}

// Describe implements prometheus.Collector.
func (im *Importer) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range im.metrics.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (im *Importer) Collect(ch chan<- prometheus.Metric) {
	for _, s := range im.Status() {
		connected := 0.0
		if s.Connected {
			connected = 1
		}
		im.metrics.connected.WithLabelValues(s.ID).Set(connected)
	}
	for _, c := range im.metrics.collectors() {
		c.Collect(ch)
	}
}
