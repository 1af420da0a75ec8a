package clusterinformers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
)

// metrics is what the scopes count, by member and kind. A scope costs 96 bytes here and
// nothing in a registry: metricsCollector sums at each scrape.
type metrics struct {
	shared *sharedMetrics

	mu      sync.Mutex
	members map[string]*memberMetrics
}

// sharedMetrics are those of the whole fleet.
type sharedMetrics struct {
	latency prometheus.Histogram
	audits  *prometheus.CounterVec
	audited prometheus.Histogram
}

// countAudit counts an audit by its outcome.
func (m *sharedMetrics) countAudit(r *AuditResult) {
	m.audits.WithLabelValues(r.Outcome).Inc()
	m.audited.Observe(r.Took.Seconds())
}

func (m *sharedMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.latency, m.audits, m.audited}
}

func newMetrics() *metrics {
	return &metrics{members: map[string]*memberMetrics{}, shared: &sharedMetrics{
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "federator", Name: "scope_event_to_commit_seconds", Help: "Time from reading a watch event until it is visible in a snapshot, over all members.",
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			Buckets: []float64{1e-3, 5e-3, 2.5e-2, .1, 1},
		}),
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "federator", Name: "audits_total", Help: "Comparisons of a kind of a member with what the member lists, by outcome: equal, different (listed again), unconfirmed, inFlight (looked at again), expired, failed, listed (instead) or notSynced.",
		}, []string{"outcome"}),
		audited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "federator", Name: "audit_seconds", Help: "Duration of an audit of a kind of a member, with the time that it waits for its budget and for the list that repairs it.",
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			Buckets: []float64{5e-3, 2.5e-2, .1, 1, 10, 100},
		}),
	}}
}

// memberMetrics are those of one member. They go with it.
type memberMetrics struct {
	panics     counter // of its own goroutines
	violations counter // of HTTP/2
	refused    gauge   // kinds that are rejected
	lost       [len(audit.Causes)]counter

	mu     sync.Mutex
	scopes map[aggregate.Kind]*scopeMetrics
	gone   counts // of scopes that are gone: counters never decrease
}

// scopeMetrics are those of one scope, looked up once. They are written to without a
// lock.
type scopeMetrics struct {
	*sharedMetrics
	objects, bytes, leftOut     gauge
	restarts, fallbacks, panics counter
	lastContact                 atomic.Int64 // Unix milliseconds, 0: none
	relists                     [len(relistCauses)]atomic.Uint32
}

// relistCauses are the values of label cause; the last one stands for all others.
var relistCauses = [...]string{"initial", "expired", "served otherwise", "budget", "audit", "other"}

type gauge struct{ v atomic.Int64 }

// Set sets a gauge of a whole number.
func (g *gauge) Set(v float64) { g.v.Store(int64(v)) }

type counter struct{ n atomic.Uint64 }

func (c *counter) Inc()          { c.n.Add(1) }
func (c *counter) Add(n float64) { c.n.Add(uint64(n)) }

func (s *scopeMetrics) contact(now time.Time) { s.lastContact.Store(now.UnixMilli()) }

func (s *scopeMetrics) relist(cause string) { s.relists[relistCause(cause)].Add(1) }

// relistCause returns the index of a cause.
func relistCause(cause string) int {
	if n := slices.Index(relistCauses[:], cause); n >= 0 {
		return n
	}
	return len(relistCauses) - 1
}

// member returns the metrics of a member, new ones where there are none.
func (m *metrics) member(name string) *memberMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	mm := m.members[name]
	if mm == nil {
		mm = &memberMetrics{scopes: map[aggregate.Kind]*scopeMetrics{}}
		m.members[name] = mm
	}
	return mm
}

// lookup returns the metrics of a member, nil where there are none.
func (m *metrics) lookup(name string) *memberMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members[name]
}

// scope returns the metrics of a scope, which outlive its informer.
func (m *metrics) scope(member string, kind aggregate.Kind) *scopeMetrics {
	mm := m.member(member)
	mm.mu.Lock()
	defer mm.mu.Unlock()
	s := mm.scopes[kind]
	if s == nil {
		s = &scopeMetrics{sharedMetrics: m.shared}
		mm.scopes[kind] = s
	}
	return s
}

// forget drops all of a member, or of one of its kinds, which has no informer any more.
func (m *metrics) forget(member string, kind aggregate.Kind) {
	if kind == "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.members, member)
		return
	}
	mm := m.member(member)
	mm.mu.Lock()
	defer mm.mu.Unlock()
	if s := mm.scopes[kind]; s != nil {
		mm.gone.addCounters(s)
		delete(mm.scopes, kind)
	}
}

// counts are the sums over scopes.
type counts struct {
	objects, bytes, leftOut     int64
	restarts, fallbacks, panics uint64
	relists                     [len(relistCauses)]uint64
}

func (c *counts) addCounters(s *scopeMetrics) {
	c.restarts += s.restarts.n.Load()
	c.fallbacks += s.fallbacks.n.Load()
	c.panics += s.panics.n.Load()
	for n := range s.relists {
		c.relists[n] += uint64(s.relists[n].Load())
	}
}

func (c *counts) add(s *scopeMetrics) {
	c.objects += s.objects.v.Load()
	c.bytes += s.bytes.v.Load()
	c.leftOut += s.leftOut.v.Load()
	c.addCounters(s)
}
