package enforce

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/policy"
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
			Name: "federator_policy_batch_seconds", Help: "Time from a batch of changes to its verdicts.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		resets: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_policy_resets_total", Help: "Re-evaluations of all policies because a batch failed.",
		}),
	}
}

// bindingHelp ends the help of every metric of a policy.
const bindingHelp = " Label binding is deprecated: use policy, which has the same value."

// policyDesc describes a metric of a policy, with more labels.
func policyDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+bindingHelp, append([]string{"binding", "policy"}, more...), nil)
}

var (
	descVerdicts    = policyDesc("federator_policy_verdicts", "Verdicts, by policy and state.", "state")
	descViolations  = policyDesc("federator_policy_violations", "Violations, by policy and severity; exempt ones not included.", "severity")
	descExempt      = policyDesc("federator_policy_exempt_violations", "Exempt violations, by policy.")
	descEvaluations = policyDesc("federator_policy_evaluations_total", "Evaluations, by policy.")
	descSeconds     = policyDesc("federator_policy_evaluation_seconds_total", "Time spent evaluating, by policy.")
	descErrors      = policyDesc("federator_policy_evaluation_errors_total", "Failed evaluations, by policy.")
	descOverruns    = policyDesc("federator_policy_overruns_total", "Evaluations that exceeded their time budget, by policy.")
	descQuarantined = policyDesc("federator_policy_quarantined", "1 for a policy and a member where it is not evaluated for a while, because it used up its time without a result; 0, without a member, where there is none.", "member")
	descInterpreted = policyDesc("federator_policy_interpreted_evaluations_total", "Evaluations that OPA interpreted, by policy: of rules that are not compiled, and of errors.")
	descWide        = policyDesc("federator_policy_wide_reads_total", "Reads of an entire view, kind or member, by policy.")

	descByMember = prometheus.NewDesc("federator_member_violations", "Violations, by member and severity; exempt ones, and those of keys of views, not included. Severities without any have no series.", []string{"member", "severity"}, nil)
	descWorst    = prometheus.NewDesc("federator_policy_member_violations", "Violations, by policy, member and severity, of the 20 members with the most.", []string{"policy", "member", "severity"}, nil)

	descSynced       = prometheus.NewDesc("federator_policy_synced", "1 once every scope that policies read has been listed or has timed out.", nil, nil)
	descRevision     = prometheus.NewDesc("federator_policy_revision", "Changes committed since the start that the newest verdicts include.", nil, nil)
	descLag          = prometheus.NewDesc("federator_policy_lag_seconds", "Upper bound of the age of the oldest change that is not evaluated; 0 when there is none.", nil, nil)
	descLagRevisions = prometheus.NewDesc("federator_policy_lag_revisions", "Revisions of the index that are not evaluated yet.", nil, nil)
	descBehind       = prometheus.NewDesc("federator_policy_clock_behind_seconds", "How far the clock is behind the time as of which verdicts are, because it was set back; verdicts that depend on what has passed meanwhile are Unknown.", nil, nil)
	descInstants     = prometheus.NewDesc("federator_policy_instants", "Instants that verdicts depend on and that have not passed.", nil, nil)
	descAsked        = prometheus.NewDesc("federator_policy_asked_reads", "Distinct reads of what other processes judge: of keys of views, names of objects, and all of a kind or view.", nil, nil)
	descAwaited      = prometheus.NewDesc("federator_policy_awaited_reads", "Those of federator_policy_asked_reads of which other processes have not told all; verdicts that rest on them are Unknown.", nil, nil)
	descMemory       = prometheus.NewDesc("federator_policy_bytes", "Memory of the policy engine in bytes, by use.", []string{"of"}, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descVerdicts, descViolations, descExempt, descByMember, descWorst, descEvaluations, descSeconds, descErrors, descOverruns, descQuarantined,
		descWide, descInterpreted, descSynced, descRevision, descMemory, descAsked, descAwaited, descBehind, descInstants, descLag, descLagRevisions,
	} {
		ch <- d
	}
	m.batches.Describe(ch)
	m.resets.Describe(ch)
}

// maxWorstMembers is how many members a policy has series of: of policies times members there
// may be many.
const maxWorstMembers = 20

// memberViolations are the violations in a member.
type memberViolations struct {
	member, severity string
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.batches.Collect(ch)
	m.resets.Collect(ch)
	m.lag(ch)
	s := m.loop.State()
	if s == nil {
		return
	}
	byMember := map[memberViolations]int{}
	for b, severity := range s.Bindings() {
		collectPolicy(ch, s, b.Name, severity)
		collectViolations(ch, s, b.Name, severity, byMember)
	}
	for of, n := range byMember {
		ch <- prometheus.MustNewConstMetric(descByMember, prometheus.GaugeValue, float64(n), of.member, of.severity)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descSynced, boolGauge(s.Synced))
	gauge(descRevision, float64(s.Snapshot.Changes()))
	gauge(descBehind, max(0, s.AsOf.Sub(m.loop.opts.Clock().Truncate(time.Second)).Seconds()))
	stats := m.loop.Stats()
	gauge(descInstants, float64(stats.Instants))
	gauge(descMemory, float64(stats.DependencyBytes), "dependencies")
	gauge(descMemory, float64(stats.ViewBytes), "views")
	gauge(descMemory, float64(stats.AskedBytes), "asked")
	gauge(descAsked, float64(stats.Asked))
	gauge(descAwaited, float64(stats.Awaited))
}

func collectPolicy(ch chan<- prometheus.Metric, s *policy.State, name, severity string) {
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{name, name}, more...)...)
	}
	total := s.Total(name)
	send(descVerdicts, prometheus.GaugeValue, float64(total.Known), "Known")
	send(descVerdicts, prometheus.GaugeValue, float64(total.Unknown), "Unknown")
	send(descVerdicts, prometheus.GaugeValue, float64(total.Errors), "Error")
	send(descViolations, prometheus.GaugeValue, float64(total.Violations), severity)
	send(descExempt, prometheus.GaugeValue, float64(total.Exempt))
	h, _ := s.Health(name)
	send(descEvaluations, prometheus.CounterValue, float64(h.Evaluations))
	send(descSeconds, prometheus.CounterValue, float64(h.Nanoseconds)/1e9)
	send(descErrors, prometheus.CounterValue, float64(h.Errors))
	send(descOverruns, prometheus.CounterValue, float64(h.Overruns))
	send(descWide, prometheus.CounterValue, float64(h.WideReads))
	send(descInterpreted, prometheus.CounterValue, float64(h.Interpreted))
	if len(h.Quarantines) == 0 {
		send(descQuarantined, prometheus.GaugeValue, 0, "") // so that alerts find the series
	}
	for _, q := range h.Quarantines {
		send(descQuarantined, prometheus.GaugeValue, 1, q.Member)
	}
}

// collectViolations adds the violations of a policy to those of the members, and sends those of the
// members with the most.
func collectViolations(ch chan<- prometheus.Metric, s *policy.State, name, severity string, byMember map[memberViolations]int) {
	in := map[string]int{}
	for member, c := range s.Counts(name) {
		if member != "" && c.Violations > 0 { // keys of views are of no member
			in[member] += c.Violations
			byMember[memberViolations{member, severity}] += c.Violations
		}
	}
	worst := slices.SortedFunc(maps.Keys(in), func(a, b string) int { return cmp.Or(cmp.Compare(in[b], in[a]), cmp.Compare(a, b)) })
	for _, member := range worst[:min(len(worst), maxWorstMembers)] {
		ch <- prometheus.MustNewConstMetric(descWorst, prometheus.GaugeValue, float64(in[member]), name, member, severity)
	}
}

// lag reports how far verdicts are behind the index; in time, also behind what peers have told.
func (m *metrics) lag(ch chan<- prometheus.Metric) {
	oldest := m.loop.oldestPending.Load() // before the state: that change may be evaluated meanwhile
	heard := m.loop.heard.Load()
	evaluated := uint64(0)
	if s := m.loop.State(); s != nil {
		evaluated = s.Snapshot.Changes()
	}
	revisions, lag := 0.0, 0.0
	if newest := m.loop.opts.Index.Snapshot().Changes(); newest > evaluated {
		revisions = float64(newest - evaluated)
	}
	if oldest > 0 && (revisions > 0 || m.loop.opts.Peers != nil && m.loop.opts.Peers.Snapshot().Changes() > heard) {
		lag = max(0, m.loop.opts.Clock().Sub(time.Unix(0, oldest)).Seconds())
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
