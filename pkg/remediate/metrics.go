package remediate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/api/v1alpha1"
)

// metrics counts what has been done, and reads the rest when it is scraped. The series of
// a policy exist as long as the policy; members are those that have been written to.
type metrics struct {
	d       *Dispatcher
	actions *prometheus.CounterVec
	writes  *prometheus.CounterVec
	claimed *prometheus.CounterVec
	dryRuns *prometheus.CounterVec
}

func newMetrics(d *Dispatcher) *metrics {
	return &metrics{
		d: d,
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_actions_total", Help: "Corrections and rollbacks that have ended, by policy, member and outcome: the phase of the Action." + bindingHelp,
		}, policyLabels("member", "outcome")),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_actions_writes_total", Help: "Writes sent to a member, dry runs not included.",
		}, []string{"member"}),
		claimed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_actions_claimed_total", Help: "Corrections of targets with marks of a GitOps controller or Helm, which may revert them, by the tool: Argo CD, Flux, Helm or other. Targets that trusted objects list are not corrected, and not counted here.",
		}, []string{"policy", "member", "tool"}),
		dryRuns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_dry_run_answers_total", Help: "Answers of members to the dry runs of policies in mode DryRun, by answer, as in their Plans.",
		}, []string{"policy", "member", "answer"}),
	}
}

// bindingHelp ends the help of every metric of a policy.
const bindingHelp = " Label binding is deprecated: use policy, which has the same value."

// policyLabels are the labels of a metric of a policy, and more.
func policyLabels(more ...string) []string { return append([]string{"binding", "policy"}, more...) }

func policyDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+bindingHelp, policyLabels(more...), nil)
}

var (
	descPending            = policyDesc("federator_actions_pending", "Corrections of a policy that are pending.")
	descHalted             = policyDesc("federator_actions_halted", "1 while a policy is halted: nothing is written until the halt is acknowledged.")
	descLimit              = policyDesc("federator_actions_budget_limit", "Targets that a limit allows within its window; scope is policy, member or fleet. Of the 20 members with the least remaining, as for all budgets.", "scope", "member")
	descUsed               = policyDesc("federator_actions_budget_used", "Targets that count towards a limit: those written within its window, and those to be written.", "scope", "member")
	descSpent              = policyDesc("federator_actions_budget_spent", "Deprecated: use federator_actions_budget_used.", "scope", "member")
	descRemaining          = policyDesc("federator_actions_budget_remaining", "Targets that a limit still allows; negative when it is exceeded.", "scope", "member")
	descLeft               = policyDesc("federator_actions_budget_left", "Deprecated: use federator_actions_budget_remaining.", "scope", "member")
	descWave               = policyDesc("federator_actions_wave", "Number of the current wave of a policy, starting at 1, by its phase.", "phase")
	descWaves              = policyDesc("federator_actions_waves", "How many waves a policy has.")
	descUnhealthy          = policyDesc("federator_actions_wave_unhealthy", "Objects written by the current wave that are not healthy.")
	descStopped            = prometheus.NewDesc("federator_actions_stopped", "1 while all actions are stopped.", nil, nil)
	descStops              = prometheus.NewDesc("federator_actions_stops", "1 for each stop, by its scope (all, policy, member or source) and what it names. There is one of all while it is not known what is stopped.", []string{"scope", "name"}, nil)
	descRecorded           = prometheus.NewDesc("federator_actions_recorded", "Actions on the hub, counted by the process that last was the leader.", nil, nil)
	descRecordedBytes      = prometheus.NewDesc("federator_actions_recorded_bytes", "Bytes of the Actions on the hub, at most.", nil, nil)
	descRecordedLimit      = prometheus.NewDesc("federator_actions_recorded_limit", "How many Actions there may be; 0 is no limit.", nil, nil)
	descRecordedBytesLimit = prometheus.NewDesc("federator_actions_recorded_bytes_limit", "How many bytes the Actions may have; 0 is no limit.", nil, nil)
	descExhausted          = prometheus.NewDesc("federator_actions_exhausted", "1 while corrections wait since there are as many Actions as there may be.", nil, nil)
	descLeader             = prometheus.NewDesc("federator_actions_leader", "1 where this process is the leader, the only one that writes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPending, descHalted, descLimit, descUsed, descSpent, descRemaining, descLeft, descWave, descWaves, descUnhealthy, descStopped, descStops, descLeader,
		descRecorded, descRecordedBytes, descRecordedLimit, descRecordedBytesLimit, descExhausted,
	} {
		ch <- d
	}
	m.actions.Describe(ch)
	m.writes.Describe(ch)
	m.claimed.Describe(ch)
	m.dryRuns.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.actions.Collect(ch)
	m.writes.Collect(ch)
	m.claimed.Collect(ch)
	m.dryRuns.Collect(ch)
	ch <- prometheus.MustNewConstMetric(descLeader, prometheus.GaugeValue, boolGauge(m.d.checkLeader() == nil))
	ch <- prometheus.MustNewConstMetric(descStopped, prometheus.GaugeValue, boolGauge(m.d.Stopped() != ""))
	m.d.collectStops(ch)
	m.d.collectRoom(ch)
	m.d.mu.Lock()
	names := sortedKeys(m.d.policies)
	names = slices.DeleteFunc(names, func(name string) bool { return m.d.policies[name].removed })
	m.d.mu.Unlock()
	for _, name := range names {
		if s, ok := m.d.Status(name); ok {
			collectPolicy(ch, name, &s)
		}
	}
}

func collectPolicy(ch chan<- prometheus.Metric, name string, s *Status) {
	send := func(d *prometheus.Desc, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{name, name}, more...)...)
	}
	send(descPending, float64(s.Pending))
	send(descHalted, boolGauge(s.Halted != nil))
	for _, u := range shownBudgets(s.Budget) {
		scope, member := "member", u.Scope
		if u.Scope == "policy" || u.Scope == "fleet" {
			scope, member = u.Scope, ""
		}
		send(descLimit, float64(u.Max), scope, member)
		send(descUsed, float64(u.Targets), scope, member)
		send(descSpent, float64(u.Targets), scope, member)
		send(descRemaining, float64(u.Max-u.Targets), scope, member)
		send(descLeft, float64(u.Max-u.Targets), scope, member)
	}
	if w := s.Wave; w != nil {
		send(descWave, float64(w.Number), string(w.Phase))
		send(descWaves, float64(w.Of))
		send(descUnhealthy, float64(w.Unhealthy))
	}
}

// maxShownMembers is how many members a policy has budgets of: those with the least remaining.
const maxShownMembers = 20

// shownBudgets returns the limits that have series.
func shownBudgets(list []BudgetUsage) []BudgetUsage {
	out := slices.SortedFunc(maps.Values(leastRemaining(list)), func(a, b BudgetUsage) int {
		return cmp.Or(cmp.Compare(a.Max-a.Targets, b.Max-b.Targets), cmp.Compare(a.Scope, b.Scope))
	})
	members := 0
	return slices.DeleteFunc(out, func(u BudgetUsage) bool {
		if u.Scope == "policy" || u.Scope == "fleet" {
			return false
		}
		members++
		return members > maxShownMembers
	})
}

// leastRemaining keeps one limit of each scope, the one with the least remaining: the fleet has
// one of its own, and one of the policy.
func leastRemaining(list []BudgetUsage) map[string]BudgetUsage {
	out := map[string]BudgetUsage{}
	for _, u := range list {
		if previous, ok := out[u.Scope]; !ok || u.Max-u.Targets < previous.Max-previous.Targets {
			out[u.Scope] = u
		}
	}
	return out
}

// countEnded counts an action.
func (m *metrics) countEnded(a *Action) {
	if a.claimedBy != "" && a.Phase == v1alpha1.PhaseSucceeded {
		m.claimed.WithLabelValues(a.Binding, a.Remedy.Target.Member, a.claimedBy).Inc()
	}
	m.actions.WithLabelValues(a.Binding, a.Binding, a.Remedy.Target.Member, string(a.Phase)).Inc()
}

// removePolicy drops the counters of a policy.
func (m *metrics) removePolicy(binding string) {
	m.actions.DeletePartialMatch(prometheus.Labels{"binding": binding})
	m.dryRuns.DeletePartialMatch(prometheus.Labels{"policy": binding})
	m.claimed.DeletePartialMatch(prometheus.Labels{"policy": binding})
}

func boolGauge(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
