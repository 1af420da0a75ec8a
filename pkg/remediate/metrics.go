package remediate

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what has been done, and reads the rest when it is scraped. What has a
// binding's name has it for as long as there is the binding; members are those that have
// been written to.
type metrics struct {
	d       *Dispatcher
	actions *prometheus.CounterVec
	writes  *prometheus.CounterVec
}

func newMetrics(d *Dispatcher) *metrics {
	return &metrics{
		d: d,
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_actions_total", Help: "Corrections and rollbacks that have ended, by binding, member and outcome: the phase of an Action.",
		}, []string{"binding", "member", "outcome"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_actions_writes_total", Help: "Writes that were sent to a member, dry runs not included.",
		}, []string{"member"}),
	}
}

var (
	descPending = prometheus.NewDesc("federator_actions_pending", "Corrections that a binding wants and that are not done.", []string{"binding"}, nil)
	descHalted  = prometheus.NewDesc("federator_actions_halted", "1 while nothing is written of a binding until somebody acknowledges.", []string{"binding"}, nil)
	descLimit   = prometheus.NewDesc("federator_actions_budget_limit", "Targets that a limit allows within its window; scope is policy, member or fleet.",
		[]string{"binding", "scope", "member"}, nil)
	descSpent = prometheus.NewDesc("federator_actions_budget_spent", "Targets that count in a limit: those written within its window, and those wanted.",
		[]string{"binding", "scope", "member"}, nil)
	descLeft = prometheus.NewDesc("federator_actions_budget_left", "Targets that a limit still allows; negative when it is exceeded.",
		[]string{"binding", "scope", "member"}, nil)
	descWave      = prometheus.NewDesc("federator_actions_wave", "The wave that a binding is at, from 1, by its phase.", []string{"binding", "phase"}, nil)
	descWaves     = prometheus.NewDesc("federator_actions_waves", "How many waves a binding has.", []string{"binding"}, nil)
	descUnhealthy = prometheus.NewDesc("federator_actions_wave_unhealthy", "Objects that the present wave has written and that are not healthy.", []string{"binding"}, nil)
	descStopped   = prometheus.NewDesc("federator_actions_stopped", "1 while all actions are stopped.", nil, nil)
	descLeader    = prometheus.NewDesc("federator_actions_leader", "1 where this process is the one that acts.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPending, descHalted, descLimit, descSpent, descLeft, descWave, descWaves, descUnhealthy, descStopped, descLeader,
	} {
		ch <- d
	}
	m.actions.Describe(ch)
	m.writes.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.actions.Collect(ch)
	m.writes.Collect(ch)
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	send(descLeader, one(m.d.opts.Lead == nil || m.d.opts.Lead() == nil))
	send(descStopped, one(m.d.Stopped() != ""))
	m.d.mu.Lock()
	names := sortedKeys(m.d.bindings)
	m.d.mu.Unlock()
	for _, name := range names {
		s, ok := m.d.Status(name)
		if !ok {
			continue
		}
		send(descPending, float64(s.Pending), name)
		send(descHalted, one(s.Halted != nil), name)
		for _, b := range tightest(s.Budget) {
			scope, member := "member", b.Of
			if b.Of == "policy" || b.Of == "fleet" {
				scope, member = b.Of, ""
			}
			send(descLimit, float64(b.Most), name, scope, member)
			send(descSpent, float64(b.Targets), name, scope, member)
			send(descLeft, float64(b.Most-b.Targets), name, scope, member)
		}
		if w := s.Wave; w != nil {
			send(descWave, float64(w.Number), name, string(w.Phase))
			send(descWaves, float64(w.Of), name)
			send(descUnhealthy, float64(w.Unhealthy), name)
		}
	}
}

// tightest keeps one limit of each scope, the one with the least left: the fleet has one
// of its own, and one of the binding.
func tightest(list []Spent) map[string]Spent {
	out := map[string]Spent{}
	for _, s := range list {
		if had, ok := out[s.Of]; !ok || s.Most-s.Targets < had.Most-had.Targets {
			out[s.Of] = s
		}
	}
	return out
}

// ended counts an action.
func (m *metrics) ended(a *Action) {
	m.actions.WithLabelValues(a.Binding, a.Remedy.Target.Member, string(a.Phase)).Inc()
}

// forget drops what is counted of a binding.
func (m *metrics) forget(binding string) {
	m.actions.DeletePartialMatch(prometheus.Labels{"binding": binding})
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
