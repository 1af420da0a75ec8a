package clusterinformers

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// metricsFleet is a manager with members that are connected and whose kinds are Synced, without the
// goroutines.
type metricsFleet struct {
	t        testing.TB
	manager  *Manager
	registry *prometheus.Registry
}

func newMetricsFleet(t testing.TB, members, kinds int, perScope bool) *metricsFleet {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	f := &metricsFleet{t: t, registry: prometheus.NewRegistry()}
	f.manager, err = New(Options{
		Index: index, Sources: []Source{nil}, Logger: slog.New(slog.DiscardHandler), Metrics: f.registry, MetricsPerScope: perScope,
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for m := range members {
		mb := newMember(f.manager, Spec{Name: metricsMember(m)})
		mb.conn.setLocked(true, connection.Connected, "", "")
		mb.conn.lastRead.Store(now.UnixNano())
		mb.synced.Store(true)
		f.manager.members[mb.name] = mb
		if err := index.PutMember(aggregate.Member{Name: mb.name}); err != nil {
			t.Fatal(err)
		}
		for k := range kinds {
			f.state(m, k, aggregate.Synced)
			s := f.scope(m, k)
			s.objects.Set(3)
			s.bytes.Set(1234)
			s.relist("initial")
			s.contact(now)
		}
	}
	return f
}

func metricsMember(n int) string { return fmt.Sprintf("team-production/cluster-%04d", n) }
func metricsKind(n int) aggregate.Kind {
	return aggregate.Kind(fmt.Sprintf("Resource%03d.example.com", n))
}
func (f *metricsFleet) member(n int) *member { return f.manager.members[metricsMember(n)] }

func (f *metricsFleet) scope(member, kind int) *scopeMetrics {
	return f.manager.metrics.scope(metricsMember(member), metricsKind(kind))
}

func (f *metricsFleet) state(member, kind int, state aggregate.State) {
	f.t.Helper()
	scope, err := f.manager.opts.Index.OpenScope(metricsMember(member), metricsKind(kind), "v1")
	if err != nil {
		f.t.Fatal(err)
	}
	scope.SetStatus(aggregate.Status{State: state})
	if _, err := scope.Commit(); err != nil {
		f.t.Fatal(err)
	}
	scope.Close()
}

// text is what /metrics answers.
func (f *metricsFleet) text() string {
	f.t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(f.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		f.t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// lines are the samples that begin so.
func (f *metricsFleet) lines(prefix string) (out []string) {
	for line := range strings.Lines(f.text()) {
		if strings.HasPrefix(line, prefix) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func (f *metricsFleet) want(name string, labels string, value string) {
	f.t.Helper()
	series := name
	if labels != "" {
		series += "{" + labels + "}"
	}
	got := f.lines(series + " ")
	if value == "" && len(got) == 0 || len(got) == 1 && got[0] == series+" "+value {
		return
	}
	f.t.Errorf("%s is %q, want %q", series, got, value)
}

func TestMetricsCollector_ThousandMembersFitTwoMegabytes(t *testing.T) {
	if testing.Short() {
		t.Skip("100,000 scopes")
	}
	const members, kinds = 1000, 100
	f := newMetricsFleet(t, members, kinds, false)
	measure := func(what string) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		started := time.Now()
		text := f.text()
		took := time.Since(started)
		runtime.ReadMemStats(&after)
		t.Logf("%s: %d bytes, %d lines, %s, %d KB allocated", what, len(text), strings.Count(text, "\n"), took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>10)
		if len(text) >= 2e6 {
			t.Errorf("%s: /metrics has %d bytes, want less than 2 MB", what, len(text))
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%s: a scrape allocates %d bytes", what, n)
		}
	}
	if n := unsafe.Sizeof(scopeMetrics{}); n > 96 {
		t.Errorf("the metrics of a scope have %d bytes, want at most 96", n)
	}
	measure("healthy")
	f.want("federator_scopes_unnamed", "", "0")
	if got := len(f.lines("federator_scope_")); got > 20 { // the histogram
		t.Errorf("%d series by kind of a healthy fleet", got)
	}
	for m := range members {
		for k := range kinds {
			if k%2 == 0 {
				f.state(m, k, aggregate.Forbidden)
				s := f.scope(m, k)
				s.panics.Inc()
				s.leftOut.Set(1)
				s.fallbacks.Inc()
				s.relist("expired")
			}
		}
	}
	measure("with half of it wrong")
	if got := len(f.lines("federator_scope_unsynced")); got != maxNamedScopes {
		t.Errorf("%d kinds are named, want %d", got, maxNamedScopes)
	}
	f.want("federator_scopes_unnamed", "", fmt.Sprintf("%d", members*kinds/2-maxNamedScopes))
}

func TestMetricsCollector_SumsAreExact(t *testing.T) {
	f := newMetricsFleet(t, 2, 3, false)
	of := func(n int) string { return fmt.Sprintf("member=%q", metricsMember(n)) }
	f.scope(0, 0).objects.Set(10)
	f.scope(0, 1).objects.Set(7)
	f.scope(0, 1).objects.Set(5)
	f.scope(0, 1).leftOut.Set(2)
	f.scope(0, 1).restarts.Inc()
	f.scope(0, 2).fallbacks.Add(4)
	f.scope(0, 2).relist("expired")
	f.scope(0, 2).relist("a cause of tomorrow")
	f.manager.metrics.member(metricsMember(0)).panics.Inc()
	f.scope(0, 2).panics.Inc()
	f.member(0).setRejected(map[aggregate.Kind]string{"A": "", "B": ""})
	for name, want := range map[string]string{
		"objects": "18", "bytes": "3702", "left_out_objects": "2", "watch_restarts_total": "1", "decode_fallbacks_total": "4", "panics_total": "2",
		"kinds_refused": "2", "connected": "1",
	} {
		f.want("federator_member_"+name, of(0), want)
	}
	f.want("federator_member_relists_total", `cause="initial",`+of(0), "3")
	f.want("federator_member_relists_total", `cause="expired",`+of(0), "1")
	f.want("federator_member_relists_total", `cause="other",`+of(0), "1")
	f.want("federator_member_scopes", of(0)+`,state="Synced"`, "3")
	f.want("federator_member_objects", of(1), "9")
	f.want("federator_member_relists_total", `cause="expired",`+of(1), "")

	// A scope that is forgotten takes its gauges with it, and no counter decreases.
	for k := range 3 {
		f.manager.metrics.forget(metricsMember(0), metricsKind(k))
	}
	for name, want := range map[string]string{
		"objects": "0", "bytes": "0", "left_out_objects": "0", "watch_restarts_total": "1", "decode_fallbacks_total": "4", "panics_total": "2",
	} {
		f.want("federator_member_"+name, of(0), want)
	}
	f.scope(0, 1).restarts.Inc()
	f.want("federator_member_watch_restarts_total", of(0), "2")
	f.want("federator_member_relists_total", `cause="initial",`+of(0), "3")

	f.manager.metrics.forget(metricsMember(1), "")
	f.want("federator_member_objects", of(1), "0")
}

func TestMetricsCollector_NamesKindsOnlyWhereSomethingIsWrong(t *testing.T) {
	f := newMetricsFleet(t, 2, 30, false)
	of := func(member, kind int) string {
		return fmt.Sprintf("kind=%q,member=%q", metricsKind(kind), metricsMember(member))
	}
	f.state(0, 0, aggregate.Forbidden)
	f.state(0, 1, aggregate.Partial)
	f.state(0, 2, aggregate.NotServed)
	f.scope(0, 3).leftOut.Set(4)
	f.scope(0, 4).panics.Inc()
	f.scope(0, 5).fallbacks.Inc()
	f.want("federator_scope_unsynced", of(0, 0)+`,state="Forbidden"`, "1")
	f.want("federator_scope_left_out_objects", of(0, 3), "4")
	f.want("federator_scope_panics_total", of(0, 4), "1")
	f.want("federator_scope_decode_fallbacks_total", of(0, 5), "1")
	f.want("federator_scopes_unnamed", "", "0")
	if got := f.lines("federator_scope_"); len(got) != 4+len(f.lines("federator_scope_event_to_commit")) {
		t.Errorf("more is named: %q", got)
	}
	f.state(0, 0, aggregate.Synced)
	f.scope(0, 3).leftOut.Set(0)
	f.want("federator_scope_unsynced", of(0, 0)+`,state="Forbidden"`, "")
	f.want("federator_scope_left_out_objects", of(0, 3), "")

	// What is serious goes first where there are too many.
	for k := range 30 {
		f.state(0, k, aggregate.Stale)
	}
	if got := len(f.lines("federator_scope_unsynced")); got != maxNamedPerMember {
		t.Errorf("%d kinds are named, want %d", got, maxNamedPerMember)
	}
	f.want("federator_scope_panics_total", of(0, 4), "1")
	f.want("federator_scopes_unnamed", "", "10")

	// A member out of reach, or under way, is one fact and not one a kind.
	mb := f.member(0)
	mb.synced.Store(false)
	mb.mu.Lock()
	mb.joined = time.Now()
	mb.mu.Unlock()
	if got := f.lines("federator_scope_unsynced"); len(got) != 0 {
		t.Errorf("while the first lists are under way: %q", got)
	}
	mb.joined = time.Now().Add(-2 * f.manager.opts.GiveUpAfter)
	if got := f.lines("federator_scope_unsynced"); len(got) != maxNamedPerMember {
		t.Errorf("%d kinds are named once it has been given up on", len(got))
	}
	mb.conn.setLocked(false, connection.Disconnected, connection.Unreachable, "")
	if got := f.lines("federator_scope_unsynced"); len(got) != 0 {
		t.Errorf("while the member is out of reach: %q", got)
	}
	f.want("federator_member_connected", fmt.Sprintf("member=%q", metricsMember(0)), "0")
}

func TestMetricsCollector_EveryMemberConcernedHasAShare(t *testing.T) {
	f := newMetricsFleet(t, 100, 25, false)
	for m := range 100 {
		for k := range 25 {
			if m < 99 {
				f.state(m, k, aggregate.OverBudget)
			}
		}
	}
	f.scope(99, 7).fallbacks.Inc()
	named := f.lines("federator_scope_unsynced")
	if len(named) != 99*10 {
		t.Errorf("%d kinds are named, want 990", len(named))
	}
	for m := range 99 {
		of := func(line string) bool { return strings.Contains(line, fmt.Sprintf("member=%q", metricsMember(m))) }
		if !slices.ContainsFunc(named, of) {
			t.Errorf("no kind of %s is named", metricsMember(m))
		}
	}
	f.want("federator_scope_decode_fallbacks_total", fmt.Sprintf("kind=%q,member=%q", metricsKind(7), metricsMember(99)), "1")
}

func TestMetricsCollector_OldestContactIsTheFreshness(t *testing.T) {
	f := newMetricsFleet(t, 1, 3, false)
	of := fmt.Sprintf("member=%q", metricsMember(0))
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	f.scope(0, 0).contact(at(100))
	f.scope(0, 1).contact(at(200))
	f.scope(0, 2).contact(at(50))
	f.state(0, 2, aggregate.NotServed)
	f.manager.metrics.forget(metricsMember(0), metricsKind(2))
	f.member(0).conn.lastRead.Store(at(300).UnixNano())
	f.want("federator_member_oldest_contact_timestamp_seconds", of, "300") // a live connection keeps what is watched fresh
	f.state(0, 1, aggregate.Stale)
	f.want("federator_member_oldest_contact_timestamp_seconds", of, "200")
	f.member(0).conn.setLocked(false, connection.Disconnected, connection.Unreachable, "")
	f.want("federator_member_oldest_contact_timestamp_seconds", of, "100")
}

func TestMetricsCollector_PerScopeExportsEveryKind(t *testing.T) {
	f := newMetricsFleet(t, 2, 30, true)
	for k := range 30 {
		f.state(0, k, aggregate.Stale)
	}
	of := fmt.Sprintf("kind=%q,member=%q", metricsKind(29), metricsMember(1))
	for name, want := range map[string]string{
		"objects": "3", "bytes": "1234", "left_out_objects": "0", "watch_restarts_total": "0", "decode_fallbacks_total": "0", "panics_total": "0",
	} {
		f.want("federator_scope_"+name, of, want)
	}
	f.want("federator_scope_relists_total", `cause="initial",`+of, "1")
	if n := len(f.lines("federator_scope_last_contact_timestamp_seconds")); n != 60 {
		t.Errorf("%d scopes have a last contact, want 60", n)
	}
	if n := len(f.lines("federator_scope_unsynced")); n != 30 {
		t.Errorf("%d scopes are unsynced, want 30", n)
	}
	f.want("federator_scopes_unnamed", "", "0")
}
