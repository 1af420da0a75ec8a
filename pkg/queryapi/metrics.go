package queryapi

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the server. Labels are from what is served, not from requests: a resource
// that is not collected is "".
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
			Namespace: "federator", Name: "query_requests_total", Help: "Requests served.",
		}, []string{"verb", "resource", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "federator", Name: "query_request_seconds", Help: "Duration of requests, without watches.",
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			Buckets: []float64{1e-3, 5e-3, 2.5e-2, .1, .5, 2.5, 10},
		}, []string{"verb", "resource"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "federator", Name: "query_in_flight", Help: "Requests in flight, including watches."}),
		watches:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "federator", Name: "query_watches", Help: "Open watches."}),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "federator", Name: "query_panics_total", Help: "Requests that panicked."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "federator", Name: "query_refused_total", Help: "Requests that were rejected before they were served, by cause.",
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
