package enforce

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics reads one state per scrape.
type metrics struct {
	loop    *Loop
	batches prometheus.Histogram
	resets  prometheus.Counter
}

func newMetrics(l *Loop) *metrics {
	return &metrics{
		loop: l,
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "federator_policy_batch_seconds", Help: "Time from a batch of changes to the verdicts of it.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		resets: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_policy_resets_total", Help: "Times that all policies were evaluated anew because a batch failed.",
		}),
	}
}

var (
	descVerdicts = prometheus.NewDesc("federator_policy_verdicts", "Verdicts, by binding, member and state; member is empty for keys of views.",
		[]string{"binding", "member", "state"}, nil)
	descViolations = prometheus.NewDesc("federator_policy_violations", "Violations, by binding, member and severity; exempt ones not included.",
		[]string{"binding", "member", "severity"}, nil)
	descExempt = prometheus.NewDesc("federator_policy_exempt_violations", "Violations that are exempt, by binding and member.",
		[]string{"binding", "member"}, nil)
	descEvaluations  = prometheus.NewDesc("federator_policy_evaluations_total", "Evaluations, by binding.", []string{"binding"}, nil)
	descSeconds      = prometheus.NewDesc("federator_policy_evaluation_seconds_total", "Time spent evaluating, by binding.", []string{"binding"}, nil)
	descErrors       = prometheus.NewDesc("federator_policy_evaluation_errors_total", "Evaluations that failed, by binding.", []string{"binding"}, nil)
	descOverruns     = prometheus.NewDesc("federator_policy_overruns_total", "Evaluations that exceeded their time budget, by binding.", []string{"binding"}, nil)
	descQuarantined  = prometheus.NewDesc("federator_policy_quarantined", "1 for a binding and a member for which it is not evaluated for a while, because it uses its time without an answer; 0, of no member, where there is none.", []string{"binding", "member"}, nil)
	descWide         = prometheus.NewDesc("federator_policy_wide_reads_total", "Reads of a whole view, kind or member, by binding.", []string{"binding"}, nil)
	descSynced       = prometheus.NewDesc("federator_policy_synced", "1 once every scope that policies read has been listed or given up on.", nil, nil)
	descRevision     = prometheus.NewDesc("federator_policy_revision", "Changes committed since the start that the newest verdicts know.", nil, nil)
	descLag          = prometheus.NewDesc("federator_policy_lag_seconds", "How long the oldest change waits that is not judged, at most; 0 when there is none.", nil, nil)
	descLagRevisions = prometheus.NewDesc("federator_policy_lag_revisions", "Revisions of the index that are not judged yet.", nil, nil)
	descMemory       = prometheus.NewDesc("federator_policy_bytes", "Memory, by what for.", []string{"of"}, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descVerdicts, descViolations, descExempt, descEvaluations, descSeconds, descErrors, descOverruns, descQuarantined,
		descWide, descSynced, descRevision, descMemory, descLag, descLagRevisions,
	} {
		ch <- d
	}
	m.batches.Describe(ch)
	m.resets.Describe(ch)
}

// Collect implements prometheus.Collector. Members that have nothing of a kind have
// no series of it.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.batches.Collect(ch)
	m.resets.Collect(ch)
	m.lag(ch)
	s := m.loop.State()
	if s == nil {
		return
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	some := func(d *prometheus.Desc, n int, labels ...string) {
		if n > 0 {
			send(d, prometheus.GaugeValue, float64(n), labels...)
		}
	}
	for b, severity := range s.Bindings() {
		for member, c := range s.Counts(b.Name) {
			some(descVerdicts, c.Known, b.Name, member, "Known")
			some(descVerdicts, c.Unknown, b.Name, member, "Unknown")
			some(descVerdicts, c.Errors, b.Name, member, "Error")
			some(descViolations, c.Violations, b.Name, member, severity)
			some(descExempt, c.Exempt, b.Name, member)
		}
		h, _ := s.Health(b.Name)
		send(descEvaluations, prometheus.CounterValue, float64(h.Evaluations), b.Name)
		send(descSeconds, prometheus.CounterValue, float64(h.Nanoseconds)/1e9, b.Name)
		send(descErrors, prometheus.CounterValue, float64(h.Errors), b.Name)
		send(descOverruns, prometheus.CounterValue, float64(h.Overruns), b.Name)
		send(descWide, prometheus.CounterValue, float64(h.WideReads), b.Name)
		if len(h.Quarantines) == 0 {
			send(descQuarantined, prometheus.GaugeValue, 0, b.Name, "") // what an alert asks for is there
		}
		for _, q := range h.Quarantines {
			send(descQuarantined, prometheus.GaugeValue, 1, b.Name, q.Member)
		}
	}
	send(descSynced, prometheus.GaugeValue, boolGauge(s.Synced))
	send(descRevision, prometheus.GaugeValue, float64(s.Snapshot.Changes()))
	stats := m.loop.Stats()
	send(descMemory, prometheus.GaugeValue, float64(stats.DependencyBytes), "dependencies")
	send(descMemory, prometheus.GaugeValue, float64(stats.ViewBytes), "views")
}

// lag says how far verdicts are behind the index.
func (m *metrics) lag(ch chan<- prometheus.Metric) {
	behind := m.loop.oldestPending.Load() // before what is judged is looked at: what it is about may be judged meanwhile
	judged := uint64(0)
	if s := m.loop.State(); s != nil {
		judged = s.Snapshot.Changes()
	}
	revisions, lag := 0.0, 0.0
	if newest := m.loop.opts.Index.Snapshot().Changes(); newest > judged {
		revisions = float64(newest - judged)
		if behind > 0 {
			lag = max(0, m.loop.opts.Clock().Sub(time.Unix(0, behind)).Seconds())
		}
	}
	ch <- prometheus.MustNewConstMetric(descLagRevisions, prometheus.GaugeValue, revisions)
	ch <- prometheus.MustNewConstMetric(descLag, prometheus.GaugeValue, lag)
}

func boolGauge(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
