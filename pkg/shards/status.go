package shards

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/shards/internal/coordinator"
)

// Status is what is known of the shards here.
type Status struct {
	// Version is that of the map; 0: none is known.
	Version int64
	// Processes is how many live, by the map; Members how many members it has.
	Processes, Members int
	// Judges, Standbys and Joins are the members that this process holds, by role, and Unjudged those that nobody judges.
	Judges, Standbys, Joins, Unjudged int
	// LeaseAge is how long ago this process last renewed its Lease; negative: it never has.
	LeaseAge time.Duration
	// Leads is whether this process writes the map. The rest is known to that one alone.
	Leads            bool
	Moves, GivenUp   int     // members that have moved since it leads, and that were not read in time
	Imbalance, Bound float64 // of measured load; what no assignment of whole members is below
	// Problem is why the map is not usable, or could not be written: a *TooLargeError, a *NewerError, or another error.
	Problem error
}

// Status returns what is known of the shards here.
func (s *Shards) Status() Status {
	s.mu.Lock()
	m, renewed, problem := s.current, s.renewed, s.hub.err
	s.mu.Unlock()
	out := Status{LeaseAge: -1}
	if !renewed.IsZero() {
		out.LeaseAge = time.Since(renewed)
	}
	if m != nil {
		out.Version, out.Processes, out.Members = m.Version, len(m.Processes), len(m.Members)
		for i := range m.Members {
			if m.Members[i].Judge == "" {
				out.Unjudged++
			}
		}
	}
	for _, h := range s.holds.Load().members {
		switch h.role {
		case aggregate.Judge:
			out.Judges++
		case aggregate.Standby:
			out.Standbys++
		case aggregate.Joining:
			out.Joins++
		}
	}
	_, err := s.o.Lead()
	out.Leads = err == nil
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	if out.Leads {
		out.Moves, out.GivenUp, out.Imbalance, out.Bound = s.metrics.moved, s.metrics.givenUp, s.metrics.imbalance, s.metrics.bound
		out.Problem = s.metrics.problem
	}
	if problem != nil {
		out.Problem = problem
	}
	return out
}

// metrics are what is counted, and what the leader last knew.
type metrics struct {
	writes prometheus.Counter
	failed *prometheus.CounterVec

	mu               sync.Mutex
	moved, givenUp   int
	imbalance, bound float64
	problem          error
}

func newMetrics() *metrics {
	return &metrics{
		writes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_shard_map_writes_total", Help: "Maps that this process has written as the leader.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_shard_failures_total", Help: "What failed of the leader's: a map that was not written (map), a peer that did not report (report).",
		}, []string{"what"}),
	}
}

func (m *metrics) noteLeader(l *coordinator.Leader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moved, m.givenUp = l.Moved, l.Failed
	m.imbalance, m.bound = l.Imbalance()
}

// noteWrite keeps why the map cannot be written. Who was only late is not one of the reasons.
func (m *metrics) noteWrite(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var large *TooLargeError
	if m.problem = nil; errors.As(err, &large) {
		m.problem = err
	}
}

// collector collects the metrics.
type collector struct{ *Shards }

var (
	versionDesc   = prometheus.NewDesc("federator_shard_map_version", "Version of the map of shards that this process knows; 0: none.", nil, nil)
	processesDesc = prometheus.NewDesc("federator_shard_processes", "Processes that share the fleet, by the map.", nil, nil)
	membersDesc   = prometheus.NewDesc("federator_shard_members", "Members that this process holds, by role: judge, standby or joining.", []string{"role"}, nil)
	unjudgedDesc  = prometheus.NewDesc("federator_shard_members_unjudged", "Members that no process judges, by the map.", nil, nil)
	ageDesc       = prometheus.NewDesc("federator_shard_lease_age_seconds", "Time since this process last renewed its Lease; -1: it never has.", nil, nil)
	problemDesc   = prometheus.NewDesc("federator_shard_map_unusable", "1 while the map is not usable or does not fit its ConfigMap, otherwise 0.", nil, nil)
	movesDesc     = prometheus.NewDesc("federator_shard_moves", "Members that have moved since this process leads; 0 in others.", nil, nil)
	imbalanceDesc = prometheus.NewDesc("federator_shard_imbalance_ratio", "Measured load of the highest process beside the mean, in the leader; 0 in others.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{versionDesc, processesDesc, membersDesc, unjudgedDesc, ageDesc, problemDesc, movesDesc, imbalanceDesc} {
		ch <- d
	}
	c.metrics.writes.Describe(ch)
	c.metrics.failed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	st := c.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(versionDesc, float64(st.Version))
	gauge(processesDesc, float64(st.Processes))
	gauge(membersDesc, float64(st.Judges), "judge")
	gauge(membersDesc, float64(st.Standbys), "standby")
	gauge(membersDesc, float64(st.Joins), "joining")
	gauge(unjudgedDesc, float64(st.Unjudged))
	age := -1.0
	if st.LeaseAge >= 0 {
		age = st.LeaseAge.Seconds()
	}
	gauge(ageDesc, age)
	problem := 0.0
	if st.Problem != nil {
		problem = 1
	}
	gauge(problemDesc, problem)
	gauge(movesDesc, float64(st.Moves))
	gauge(imbalanceDesc, st.Imbalance)
	c.metrics.writes.Collect(ch)
	c.metrics.failed.Collect(ch)
}
