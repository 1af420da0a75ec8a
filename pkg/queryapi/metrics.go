package queryapi

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the server's. Labels come from what is served, not from what is
// asked for: a resource that is not kept is counted as "".
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	watches  prometheus.Gauge
	panics   prometheus.Counter
	refused  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "federator", Name: "query_requests_total", Help: "Requests answered.",
		}, []string{"verb", "resource", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "federator", Name: "query_request_seconds", Help: "How long answers took, watches aside.",
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			Buckets: []float64{1e-3, 5e-3, 2.5e-2, .1, .5, 2.5, 10},
		}, []string{"verb", "resource"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "federator", Name: "query_in_flight", Help: "Requests being answered, watches included."}),
		watches:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "federator", Name: "query_watches", Help: "Watches that are open."}),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "federator", Name: "query_panics_total", Help: "Requests that ended in a panic."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "federator", Name: "query_refused_total", Help: "Requests that were not let in, by cause.",
		}, []string{"cause"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.inFlight, m.watches, m.panics, m.refused} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
