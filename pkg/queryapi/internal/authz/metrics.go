package authz

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics say nothing of who asked or for what.
type metrics struct {
	reviews        *prometheus.HistogramVec
	cached, shared prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "federator", Name: "query_access_answers_total",
		Help: "Questions of access that cost no review: kept from an earlier one, or shared with one in flight.",
	}, []string{"from"})
	m := &metrics{
		reviews: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "federator", Name: "query_access_review_seconds",
			Help:    "Reviews of access by the hub and by members, by result.",
			Buckets: []float64{1e-3, 5e-3, 2.5e-2, .1, .5, 2.5},
		}, []string{"at", "result"}),
		cached: answers.WithLabelValues("kept"),
		shared: answers.WithLabelValues("shared"),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.reviews, answers} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(at string, allowed bool, err error, took time.Duration) {
	result := "denied"
	switch {
	case err != nil:
		result = "error"
	case allowed:
		result = "allowed"
	}
	m.reviews.WithLabelValues(at, result).Observe(took.Seconds())
}
