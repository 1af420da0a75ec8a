package authz

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have no labels for callers or resources.
type metrics struct {
	reviews        *prometheus.HistogramVec
	cached, shared prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "federator", Name: "query_access_answers_total",
		Help: "Authorization decisions that needed no SubjectAccessReview: from the cache (kept), or shared with an identical review in flight (shared).",
	}, []string{"from"})
	m := &metrics{
		reviews: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "federator", Name: "query_access_review_seconds",
			Help:    "Duration of SubjectAccessReviews on the hub and on members, by result.",
			Buckets: []float64{1e-3, 5e-3, 2.5e-2, .1, .5, 2.5},
		}, []string{"at", "result"}),
		cached: decisions.WithLabelValues("kept"),
		shared: decisions.WithLabelValues("shared"),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.reviews, decisions} {
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
