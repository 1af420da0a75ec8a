package clusterinformers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
)

// metrics are the manager's, by member and kind. Those of a member go with it.
type metrics struct {
	objects, bytes               *prometheus.GaugeVec
	lastContact, lastContactOld  *prometheus.GaugeVec
	leftOut                      *prometheus.GaugeVec
	restarts, relists, fallbacks *prometheus.CounterVec
	panics                       *prometheus.CounterVec
	latency                      *prometheus.HistogramVec
	memberConnected, refused     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "federator", Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "federator", Name: name, Help: help}, labels)
	}
	m := &metrics{
		objects:         gauge("scope_objects", "Objects of a kind of a member that are held.", "member", "kind"),
		bytes:           gauge("scope_bytes", "Estimated heap bytes of the objects held.", "member", "kind"),
		leftOut:         gauge("scope_left_out_objects", "Objects of a kind of a member that are not held because no API server would admit them.", "member", "kind"),
		lastContact:     gauge("scope_last_contact_timestamp_seconds", "When the member last sent anything for the kind: time() minus it is the age of the applied resourceVersion.", "member", "kind"),
		lastContactOld:  gauge("scope_heard_timestamp_seconds", "Deprecated: use federator_scope_last_contact_timestamp_seconds.", "member", "kind"),
		restarts:        counter("scope_watch_restarts_total", "Watches resumed at their resourceVersion.", "member", "kind"),
		relists:         counter("scope_relists_total", "Lists by cause; the first of a scope is initial.", "member", "kind", "cause"),
		fallbacks:       counter("scope_decode_fallbacks_total", "Objects or streams that fell back to the standard decoder or to JSON.", "member", "kind"),
		panics:          counter("scope_panics_total", "Panics of a scope's goroutines, which were restarted.", "member", "kind"),
		refused:         gauge("member_kinds_refused", "Kinds that are rejected because the member serves them in a way that contradicts itself or Kubernetes: under another kind's resource, or under several.", "member"),
		memberConnected: gauge("member_connected", "1 while the member can be reached.", "member"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "federator", Name: "scope_event_to_commit_seconds", Help: "Time from reading a watch event until it is visible in a snapshot.",
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			Buckets: []float64{1e-3, 5e-3, 2.5e-2, .1, 1},
		}, []string{"member", "kind"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range m.all() {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

type vec interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (m *metrics) all() []vec {
	return []vec{m.objects, m.bytes, m.leftOut, m.lastContact, m.lastContactOld, m.restarts, m.relists, m.fallbacks, m.panics, m.latency, m.memberConnected, m.refused}
}

// forget drops all of a member, or of one of its kinds.
func (m *metrics) forget(member string, kind aggregate.Kind) {
	match := prometheus.Labels{"member": member}
	if kind != "" {
		match["kind"] = string(kind)
	}
	for _, v := range m.all() {
		if kind != "" && (v == vec(m.memberConnected) || v == vec(m.refused)) {
			continue
		}
		v.DeletePartialMatch(match)
	}
}

// scopeMetrics are those of one scope, looked up once.
type scopeMetrics struct {
	objects, bytes              prometheus.Gauge
	lastContact, lastContactOld prometheus.Gauge
	leftOut                     prometheus.Gauge
	restarts, fallbacks, panics prometheus.Counter
	latency                     prometheus.Observer
	relist                      func(cause string)
}

func (m *metrics) scope(member string, kind aggregate.Kind) *scopeMetrics {
	k := string(kind)
	return &scopeMetrics{
		objects: m.objects.WithLabelValues(member, k), bytes: m.bytes.WithLabelValues(member, k),
		leftOut:     m.leftOut.WithLabelValues(member, k),
		lastContact: m.lastContact.WithLabelValues(member, k), lastContactOld: m.lastContactOld.WithLabelValues(member, k),
		restarts:  m.restarts.WithLabelValues(member, k),
		fallbacks: m.fallbacks.WithLabelValues(member, k), panics: m.panics.WithLabelValues(member, k),
		latency: m.latency.WithLabelValues(member, k),
		relist:  func(cause string) { m.relists.WithLabelValues(member, k, cause).Inc() },
	}
}

func (s *scopeMetrics) contact(now time.Time) {
	seconds := float64(now.UnixMilli()) / 1000
	s.lastContact.Set(seconds)
	s.lastContactOld.Set(seconds)
}
