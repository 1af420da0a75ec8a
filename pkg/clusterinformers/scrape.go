package clusterinformers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
)

// metricsCollector reads the manager's state at each scrape. A member has some dozen series.
// A kind of a member has series of its own only while something is wrong with it, within
// bounds, or where Options.MetricsPerScope asks for them.
type metricsCollector struct{ manager *Manager }

// Bounds of the scopes that have series because something is wrong with them.
const (
	maxNamedPerMember = 20
	maxNamedScopes    = 1000
)

// memberDesc describes a metric of a member, with more labels.
func memberDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"member"}, more...), nil)
}

const (
	ifWrong = " Only of kinds with something wrong, unless metrics.perScope is set."
	ifAsked = " Only if metrics.perScope is set."
)

// scopeDesc describes a metric of a kind of a member, with more labels.
func scopeDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"member", "kind"}, more...), nil)
}

var (
	descConnected  = memberDesc("federator_member_connected", "1 while the member can be reached.")
	descHeld       = memberDesc("federator_member_writes_held", "1 for a member that is not written to although it is read, by the reason: Paused or Frozen. Others have no series.", "reason")
	descRefused    = memberDesc("federator_member_kinds_refused", "Kinds that are rejected because the member serves them in a way that contradicts itself or Kubernetes: under another kind's resource, or under several.")
	descScopes     = memberDesc("federator_member_scopes", "Kinds of a member, by state; states without any have no series.", "state")
	descObjects    = memberDesc("federator_member_objects", "Objects of a member that are held.")
	descBytes      = memberDesc("federator_member_bytes", "Estimated heap bytes of the objects held.")
	descLeftOut    = memberDesc("federator_member_left_out_objects", "Objects of a member that are not held because no API server would admit them: at least so many, where they exceed its budget.")
	descContact    = memberDesc("federator_member_oldest_contact_timestamp_seconds", "When the member last sent anything for the kind that has waited longest; what keeps a connection alive counts for every kind that is watched. time() minus it is the freshness of federator members.")
	descRestarts   = memberDesc("federator_member_watch_restarts_total", "Watches resumed at their resourceVersion.")
	descRelists    = memberDesc("federator_member_relists_total", "Lists by cause; the first of a kind is initial. Causes without any have no series.", "cause")
	descFallbacks  = memberDesc("federator_member_decode_fallbacks_total", "Objects or streams that fell back to the standard decoder or to JSON.")
	descPanics     = memberDesc("federator_member_panics_total", "Panics of a member's goroutines, which were restarted.")
	descViolations = memberDesc("federator_member_protocol_errors_total", "Violations of HTTP/2 on connections to a member; after three in ten minutes that are no floods it is reached over HTTP/1.1. Members without any have no series.")

	descLost      = memberDesc("federator_lost_events_total", "Objects that audits have found to differ from the member's, which were listed again, by cause: missing here, extra here, another version, another uid, or another content at the same version. Causes without any have no series.", "cause")
	descProvedAge = memberDesc("federator_member_unproved_seconds", "The longest time since a kind of the member was last known to be held as the member has it, by tier: first (kinds that decide on security or that policies read) and all.", "tier")
	descUnaudited = memberDesc("federator_member_unaudited_scopes", "Kinds that an earlier process has held and that were not audited since; nothing is written to the member before they are. Members without any have no series.")

	descScopeUnsynced  = scopeDesc("federator_scope_unsynced", "1 for a kind of a connected member that is not Synced, Partial or NotServed, by its state, once the member has synced or giveUpAfter is over."+ifWrong, "state")
	descScopeLeftOut   = scopeDesc("federator_scope_left_out_objects", "Objects of a kind of a member that are not held because no API server would admit them: at least so many, where they exceed its budget."+ifWrong)
	descScopePanics    = scopeDesc("federator_scope_panics_total", "Panics of a kind's goroutines, which were restarted."+ifWrong)
	descScopeFallbacks = scopeDesc("federator_scope_decode_fallbacks_total", "Objects or streams that fell back to the standard decoder or to JSON."+ifWrong)
	descScopeObjects   = scopeDesc("federator_scope_objects", "Objects of a kind of a member that are held."+ifAsked)
	descScopeBytes     = scopeDesc("federator_scope_bytes", "Estimated heap bytes of the objects held."+ifAsked)
	descScopeContact   = scopeDesc("federator_scope_last_contact_timestamp_seconds", "When the member last sent anything for the kind."+ifAsked)
	descScopeRestarts  = scopeDesc("federator_scope_watch_restarts_total", "Watches resumed at their resourceVersion."+ifAsked)
	descScopeRelists   = scopeDesc("federator_scope_relists_total", "Lists by cause; the first of a scope is initial. Causes without any have no series."+ifAsked, "cause")

	descUnnamed = prometheus.NewDesc("federator_scopes_unnamed", "Kinds of members with something wrong that have no series of their own: beyond 20 of a member, or 1,000 of the fleet.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c metricsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descConnected, descHeld, descRefused, descScopes, descObjects, descBytes, descLeftOut, descContact, descRestarts, descRelists, descFallbacks, descPanics, descViolations, descLost, descProvedAge, descUnaudited,
		descScopeUnsynced, descScopeLeftOut, descScopePanics, descScopeFallbacks,
		descScopeObjects, descScopeBytes, descScopeContact, descScopeRestarts, descScopeRelists, descUnnamed,
	} {
		ch <- d
	}
	for _, shared := range c.manager.metrics.shared.collectors() {
		shared.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c metricsCollector) Collect(ch chan<- prometheus.Metric) {
	for _, shared := range c.manager.metrics.shared.collectors() {
		shared.Collect(ch)
	}
	members := c.read()
	for _, s := range members {
		s.collect(ch)
		if c.manager.opts.MetricsPerScope {
			s.collectScopes(ch)
		}
	}
	unnamed := 0
	if !c.manager.opts.MetricsPerScope {
		unnamed = collectWrong(ch, members)
	}
	ch <- prometheus.MustNewConstMetric(descUnnamed, prometheus.GaugeValue, float64(unnamed))
}

// scrapedMember is what one scrape reads of a member.
type scrapedMember struct {
	name      string
	connected bool
	held      connection.Reason // why it is not written to; "" when it is
	named     bool              // unsynced kinds are worth series: the member has had its time
	contact   int64
	scopes    map[aggregate.Kind]*scopeMetrics
	unsynced  map[aggregate.Kind]aggregate.State // neither Synced nor Partial
	states    [aggregate.OverBudget + 1]int
	sums      counts
	refused   int64
	violated  uint64
	audit     *AuditStatus
	lost      [len(audit.Causes)]uint64
}

// read reads all members, by name.
func (c metricsCollector) read() []*scrapedMember {
	members := c.manager.sortedMembers()
	out := make([]*scrapedMember, len(members))
	byName := make(map[string]*scrapedMember, len(members))
	for n, mb := range members {
		out[n] = c.readMember(mb)
		byName[mb.name] = out[n]
	}
	for info := range c.manager.opts.Index.Snapshot().Scopes("") {
		s := byName[info.Member]
		if s == nil {
			continue // it is leaving
		}
		state := info.Status.State
		s.states[state]++
		if state == aggregate.Synced || state == aggregate.Partial {
			continue
		}
		if s.unsynced == nil {
			s.unsynced = map[aggregate.Kind]aggregate.State{}
		}
		s.unsynced[info.Kind] = state
	}
	return out
}

func (c metricsCollector) readMember(mb *member) *scrapedMember {
	contact, _, _, _ := mb.conn.state()
	mb.checkSynced()
	s := &scrapedMember{name: mb.name, connected: contact == connection.Connected}
	if s.connected {
		s.named = mb.synced.Load() || mb.givenUp()
		s.contact = mb.conn.lastRead.Load() / int64(time.Millisecond)
	}
	if why := mb.hold(); why != nil {
		s.held = why.Reason
	}
	var st MemberStatus
	st.addAudit(mb.auditor, mb.runningInformers())
	s.audit = st.Audit
	mm := c.manager.metrics.lookup(mb.name)
	if mm == nil {
		return s
	}
	s.refused, s.violated = mm.refused.v.Load(), mm.violations.n.Load()
	for cause := range mm.lost {
		s.lost[cause] = mm.lost[cause].n.Load()
	}
	mm.mu.Lock()
	defer mm.mu.Unlock()
	s.scopes, s.sums = maps.Clone(mm.scopes), mm.gone
	s.sums.panics += mm.panics.n.Load()
	for _, scope := range s.scopes {
		s.sums.add(scope)
	}
	return s
}

// oldestContact is the oldest time in Unix milliseconds as of which one of the scopes is current, 0
// while there is none: as MemberStatus.Freshness.
func (s *scrapedMember) oldestContact() (oldest int64) {
	for kind, scope := range s.scopes {
		at := scope.lastContact.Load()
		if at == 0 {
			continue
		}
		if _, unsynced := s.unsynced[kind]; !unsynced {
			at = max(at, s.contact)
		}
		if oldest == 0 || at < oldest {
			oldest = at
		}
	}
	return oldest
}

func (s *scrapedMember) collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.name}, more...)...)
	}
	counter := func(d *prometheus.Desc, v uint64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{s.name}, more...)...)
	}
	connected := 0.0
	if s.connected {
		connected = 1
	}
	gauge(descConnected, connected)
	if s.held != "" {
		gauge(descHeld, 1, string(s.held))
	}
	gauge(descRefused, float64(s.refused))
	for state, n := range s.states {
		if n > 0 {
			gauge(descScopes, float64(n), aggregate.State(state).String())
		}
	}
	gauge(descObjects, float64(s.sums.objects))
	gauge(descBytes, float64(s.sums.bytes))
	gauge(descLeftOut, float64(s.sums.leftOut))
	if at := s.oldestContact(); at != 0 {
		gauge(descContact, float64(at)/1000)
	}
	counter(descRestarts, s.sums.restarts)
	for n, cause := range relistCauses {
		if s.sums.relists[n] > 0 {
			counter(descRelists, s.sums.relists[n], cause)
		}
	}
	counter(descFallbacks, s.sums.fallbacks)
	counter(descPanics, s.sums.panics)
	if s.violated > 0 {
		counter(descViolations, s.violated)
	}
	for cause, name := range audit.Causes {
		if s.lost[cause] > 0 {
			counter(descLost, s.lost[cause], name)
		}
	}
	if s.audit != nil {
		gauge(descProvedAge, s.audit.OldestFirstTier.Seconds(), "first")
		gauge(descProvedAge, s.audit.Oldest.Seconds(), "all")
		if s.audit.Unaudited > 0 {
			gauge(descUnaudited, float64(s.audit.Unaudited))
		}
	}
}

// collectScopes sends everything of each scope.
func (s *scrapedMember) collectScopes(ch chan<- prometheus.Metric) {
	for kind, scope := range s.scopes {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.name, string(kind))
		}
		counter := func(d *prometheus.Desc, v uint64, more ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{s.name, string(kind)}, more...)...)
		}
		gauge(descScopeObjects, float64(scope.objects.v.Load()))
		gauge(descScopeBytes, float64(scope.bytes.v.Load()))
		gauge(descScopeLeftOut, float64(scope.leftOut.v.Load()))
		if at := scope.lastContact.Load(); at != 0 {
			gauge(descScopeContact, float64(at)/1000)
		}
		counter(descScopeRestarts, scope.restarts.n.Load())
		counter(descScopeFallbacks, scope.fallbacks.n.Load())
		counter(descScopePanics, scope.panics.n.Load())
		for n, cause := range relistCauses {
			if lists := scope.relists[n].Load(); lists > 0 {
				counter(descScopeRelists, uint64(lists), cause)
			}
		}
	}
	for kind, state := range s.unsynced {
		s.collectUnsynced(ch, kind, state)
	}
}

// collectUnsynced sends that a kind is not synced where that is wrong.
func (s *scrapedMember) collectUnsynced(ch chan<- prometheus.Metric, kind aggregate.Kind, state aggregate.State) {
	if s.isWrong(state) {
		ch <- prometheus.MustNewConstMetric(descScopeUnsynced, prometheus.GaugeValue, 1, s.name, string(kind), state.String())
	}
}

// isWrong reports whether an unsynced kind is worth a series: of a member out of reach all are
// Stale, which federator_member_connected says once.
func (s *scrapedMember) isWrong(state aggregate.State) bool {
	return s.named && state != aggregate.NotServed
}

// wrong returns the kinds with something wrong, the most serious first. Those beyond
// serious have only been decoded more slowly.
func (s *scrapedMember) wrong() (kinds []aggregate.Kind, serious int) {
	rank := map[aggregate.Kind]int{}
	for kind, scope := range s.scopes {
		switch {
		case scope.panics.n.Load() > 0:
			rank[kind] = 1
		case scope.leftOut.v.Load() > 0:
			rank[kind] = 2
		case scope.fallbacks.n.Load() > 0:
			rank[kind] = 4
		}
	}
	for kind, state := range s.unsynced {
		if r, ranked := rank[kind]; s.isWrong(state) && (!ranked || r > 3) {
			rank[kind] = 3
		}
	}
	kinds = slices.SortedFunc(maps.Keys(rank), func(a, b aggregate.Kind) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
	})
	for serious < len(kinds) && rank[kinds[serious]] < 4 {
		serious++
	}
	return kinds, serious
}

// collectWrong sends what is wrong by kind, and returns how many kinds it leaves out because
// of the bounds. Every member concerned has an equal share of the series.
func collectWrong(ch chan<- prometheus.Metric, members []*scrapedMember) (unnamed int) {
	kinds := make([][]aggregate.Kind, len(members))
	serious := make([]int, len(members))
	concerned := 0
	for n, s := range members {
		kinds[n], serious[n] = s.wrong()
		if len(kinds[n]) > 0 {
			concerned++
		}
	}
	left, each := maxNamedScopes, min(maxNamedPerMember, max(1, maxNamedScopes/max(1, concerned)))
	named := make([]int, len(members))
	for n := range members { // what is serious anywhere goes before what is not
		named[n] = min(serious[n], each, left)
		left -= named[n]
	}
	for n, s := range members {
		if named[n] == serious[n] {
			more := min(len(kinds[n])-named[n], each-named[n], left)
			named[n] += more
			left -= more
		}
		unnamed += len(kinds[n]) - named[n]
		for _, kind := range kinds[n][:named[n]] {
			s.collectKind(ch, kind)
		}
	}
	return unnamed
}

// collectKind sends what is wrong with a kind.
func (s *scrapedMember) collectKind(ch chan<- prometheus.Metric, kind aggregate.Kind) {
	if state, unsynced := s.unsynced[kind]; unsynced {
		s.collectUnsynced(ch, kind, state)
	}
	scope := s.scopes[kind]
	if scope == nil {
		return
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
		if v > 0 {
			ch <- prometheus.MustNewConstMetric(d, t, v, s.name, string(kind))
		}
	}
	send(descScopeLeftOut, prometheus.GaugeValue, float64(scope.leftOut.v.Load()))
	send(descScopePanics, prometheus.CounterValue, float64(scope.panics.n.Load()))
	send(descScopeFallbacks, prometheus.CounterValue, float64(scope.fallbacks.n.Load()))
}
