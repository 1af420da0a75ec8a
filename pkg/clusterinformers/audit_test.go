package clusterinformers_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// lossy makes what it is told of the events of the watches of Pods.
type lossy struct {
	mu     sync.Mutex
	tamper func(event map[string]any) []map[string]any // nil: nothing
	last   string                                      // name in the last event
}

func (l *lossy) set(tamper func(map[string]any) []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tamper = tamper
}

func (l *lossy) events(event map[string]any) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if event["type"] == "BOOKMARK" {
		return []map[string]any{event}
	}
	if l.last = podName(event); l.tamper == nil {
		return []map[string]any{event}
	}
	return l.tamper(event)
}

func (l *lossy) lastName() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// lossyWriter writes a watch in JSON.
type lossyWriter struct {
	http.ResponseWriter
	lossy *lossy
	rest  []byte
}

func (w *lossyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *lossyWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		line, rest, whole := bytes.Cut(w.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		w.rest = rest
		var event map[string]any
		if err := json.Unmarshal(line, &event); err != nil {
			return 0, err
		}
		for _, e := range w.lossy.events(event) {
			text, err := json.Marshal(e)
			if err != nil {
				return 0, err
			}
			if _, err := w.ResponseWriter.Write(append(text, '\n')); err != nil {
				return 0, err
			}
		}
	}
}

// auditNow are options by which only what is asked for is audited.
func auditNow(o *clusterinformers.Options) {
	o.Audit = clusterinformers.Audit{Interval: time.Hour, FirstTier: time.Hour, RequestsPerSecond: 1000, FleetRequestsPerSecond: 1000, BytesPerSecond: 1 << 30}
}

// followLossy follows a member with Pods whose events pass a lossy.
func followLossy(t *testing.T, options func(*clusterinformers.Options)) (*rig, *lossy) {
	l := &lossy{}
	fleet := fewKinds()
	fleet.Bookmark = 50 * time.Millisecond
	r := follow(t, fleet, func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		if options != nil {
			options(o)
		}
		m := r.fleet.Members()[0]
		fill(t, m, 30)
		var server *fakeServer
		server = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.HasSuffix(req.URL.Path, "/pods") || req.URL.Query().Get("watch") == "" {
				return false
			}
			req.Header.Set("Accept", "application/json")
			server.forward(&lossyWriter{ResponseWriter: w, lossy: l}, req)
			return true
		})
		r.source.view[0] = server.spec
	})
	return r, l
}

// audited audits kinds of all members, and returns the results by kind.
func (r *rig) audited(kind aggregate.Kind) map[aggregate.Kind]clusterinformers.AuditResult {
	r.t.Helper()
	out := map[aggregate.Kind]clusterinformers.AuditResult{}
	ok(r.t, r.manager.Audit(r.t.Context(), "", kind, func(a clusterinformers.AuditResult) { out[a.Kind] = a }))
	return out
}

func podName(event map[string]any) string {
	return event["object"].(map[string]any)["metadata"].(map[string]any)["name"].(string)
}

// TestAudit_FindsAndRepairsLostEvents: whatever becomes of an event, an audit finds what differs,
// says so and has it repaired.
func TestAudit_FindsAndRepairsLostEvents(t *testing.T) {
	drop := func(map[string]any) []map[string]any { return nil }
	var held []map[string]any
	for name, c := range map[string]struct {
		tamper func(map[string]any) []map[string]any
		change func(m *sim.Member)
		causes map[string]int
	}{
		"an addition is dropped": {drop, func(m *sim.Member) { ok(t, m.Create(pod(100))) }, map[string]int{"missing": 1}},
		"a change is dropped":    {drop, func(m *sim.Member) { touch(t, m, 1, "x") }, map[string]int{"version": 1}},
		"a deletion is dropped":  {drop, func(m *sim.Member) { ok(t, m.Delete(pods, "default", "pod-0")) }, map[string]int{"extra": 1}},
		"a replacement is dropped": {drop, func(m *sim.Member) {
			ok(t, m.Delete(pods, "default", "pod-0"))
			ok(t, m.Create(pod(0)))
		}, map[string]int{"uid": 1}},
		"several are dropped": {drop, func(m *sim.Member) {
			ok(t, m.Delete(pods, "default", "pod-0"))
			ok(t, m.Create(pod(100)))
			touch(t, m, 1, "x")
			touch(t, m, 2, "x")
		}, map[string]int{"extra": 1, "missing": 1, "version": 2}},
		"the content is altered": {func(e map[string]any) []map[string]any {
			e["object"].(map[string]any)["spec"].(map[string]any)["nodeName"] = "another"
			return []map[string]any{e}
		}, func(m *sim.Member) { touch(t, m, 1, "x") }, map[string]int{"content": 1}},
		"the name is altered": {func(e map[string]any) []map[string]any {
			e["object"].(map[string]any)["metadata"].(map[string]any)["name"] = "another"
			return []map[string]any{e}
		}, func(m *sim.Member) { ok(t, m.Create(pod(100))) }, map[string]int{"missing": 1, "extra": 1}},
		"two changes are swapped": {func(e map[string]any) []map[string]any {
			if held = append(held, e); len(held) != 2 {
				return nil
			}
			return []map[string]any{held[1], held[0]}
		}, func(m *sim.Member) { touch(t, m, 1, "x"); touch(t, m, 1, "y") }, map[string]int{"version": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			held = nil
			var losses []clusterinformers.Loss
			r, l := followLossy(t, func(o *clusterinformers.Options) {
				o.OnLoss = func(l clusterinformers.Loss) { losses = append(losses, l) }
			})
			m := r.fleet.Members()[0]
			l.set(c.tamper)
			c.change(m)
			ok(t, m.Create(pod(200)))
			ok(t, m.Delete(pods, pod(200).Namespace, pod(200).Name)) // it is known by it that the others have come
			r.until("events have come", func() bool { return l.lastName() == pod(200).Name })
			r.until("a bookmark has come", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
			l.set(nil)
			got := r.audited("Pod")["Pod"]
			if got.Outcome != "different" || !got.Repaired {
				t.Fatalf("the audit says %+v", got)
			}
			for cause, n := range c.causes {
				if got.Differences[cause] < n {
					t.Errorf("the audit says %v, want %v", got.Differences, c.causes)
				}
			}
			if len(losses) != 1 || losses[0].Member != nameOf(m) || losses[0].Kind != "Pod" {
				t.Errorf("told were %+v", losses)
			}
			r.exact(m, kindsOf("Pod"))
			st := r.status(m)
			if st.Audit == nil || st.Audit.Last == nil || st.Audit.Lost == 0 || r.detail(m, "Pod").Relists["audit"] != 1 {
				t.Errorf("the status says %+v and %+v", st.Audit, r.detail(m, "Pod"))
			}
			if n := testutil.CollectAndCount(r.metrics, "federator_lost_events_total"); n != len(got.Differences) {
				t.Errorf("%d series of lost events, want %d", n, len(got.Differences))
			}
			if again := r.audited("Pod")["Pod"]; again.Outcome != "equal" || again.Objects == 0 || again.Bodies == 0 || again.Took <= 0 || again.Bytes == 0 {
				t.Errorf("the next audit says %+v", again)
			}
		})
	}
}

// TestAudit_DoesNotTakeWhatIsInFlightForLost: audits beside writes whose events come late find
// nothing.
func TestAudit_DoesNotTakeWhatIsInFlightForLost(t *testing.T) {
	r, l := followLossy(t, nil)
	m := r.fleet.Members()[0]
	late, write := time.NewTicker(500*time.Microsecond), time.NewTicker(2*time.Millisecond)
	defer late.Stop()
	defer write.Stop()
	stop, done := make(chan struct{}), make(chan struct{})
	l.set(func(e map[string]any) []map[string]any {
		select {
		case <-late.C:
		case <-stop:
		}
		return []map[string]any{e}
	})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-write.C:
			}
			touch(t, m, n%30, fmt.Sprint(n))
			ok(t, m.Create(pod(1000+n)))
			ok(t, m.Delete(pods, pod(1000+n).Namespace, pod(1000+n).Name))
		}
	}()
	for range 200 {
		if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" {
			t.Errorf("the audit says %+v", got)
		}
	}
	close(stop)
	<-done
	if n := testutil.CollectAndCount(r.metrics, "federator_lost_events_total"); n != 0 {
		t.Error("events were counted as lost")
	}
}

// TestAudit_ComparesEachKindInItsInterval: without being asked, too, and less where it is off.
func TestAudit_ComparesEachKindInItsInterval(t *testing.T) {
	for _, off := range []bool{false, true} {
		r, l := followLossy(t, func(o *clusterinformers.Options) {
			o.Audit.Interval, o.Audit.FirstTier, o.Audit.Off = 400*time.Millisecond, 200*time.Millisecond, off
		})
		m := r.fleet.Members()[0]
		l.set(func(map[string]any) []map[string]any { return nil })
		ok(t, m.Create(pod(100)))
		r.until("it is dropped", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
		l.set(nil)
		if off {
			r.during(time.Second, "nothing is repaired", func() bool { return r.status(m).Audit.Lost == 0 })
			continue
		}
		r.until("it is repaired", func() bool { return r.status(m).Audit.Lost == 1 })
		r.exact(m, kindsOf("Pod"))
		for _, d := range r.status(m).Details {
			if was := d.Proved; was == nil {
				t.Errorf("%s was never proved", d.Kind)
			} else {
				r.until(string(d.Kind)+" is proved again", func() bool { return r.detail(m, d.Kind).Proved.After(*was) })
			}
		}
	}
}

// TestAudit_IsOfWhatIsHeld: what is left out on purpose does not differ, and is not hidden.
func TestAudit_IsOfWhatIsHeld(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		o.Kinds = []clusterinformers.KindRule{
			{Kind: "Pod", Namespaces: []string{"default", "shop"}, Labels: "app!=a1", Drop: []string{"status"}},
			{Kind: "ConfigMap", Share: 1, TTL: time.Second},
			{Kind: "*"},
		}
		o.Budget.Objects = 1000
		fill(t, r.fleet.Members()[0], 60)
	})
	m := r.fleet.Members()[0]
	r.until("ConfigMaps are too old", func() bool { return len(r.held(m, "ConfigMap")) == 0 })
	ok(t, m.Create(configMap(100)))
	r.until("one is held", func() bool { return len(r.held(m, "ConfigMap")) == 1 })
	results := map[string]clusterinformers.AuditResult{}
	ok(t, r.manager.Audit(t.Context(), m.Name(), "", func(a clusterinformers.AuditResult) { results[string(a.Kind)+"/"+a.Namespace] = a }))
	for _, want := range []string{"Pod/default", "Pod/shop", "ConfigMap/", "Secret/", "Node/", "Namespace/"} {
		if got := results[want]; got.Outcome != "equal" {
			t.Errorf("%s: the audit says %+v", want, got)
		}
	}
	if got := results["ConfigMap/"]; got.Objects != 61 {
		t.Errorf("%d ConfigMaps were listed, want 61", got.Objects)
	}
	if got := results["Pod/default"]; got.Bodies == 0 || got.Objects != got.Bodies {
		t.Errorf("of %d Pods the content of %d was compared", got.Objects, got.Bodies)
	}
}

// TestManager_HoldsWritesUntilResumedScopesAreAudited: what an earlier process has held counts for
// what is in the member once it was audited or, where that cannot be done, listed.
func TestManager_HoldsWritesUntilResumedScopesAreAudited(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, req *http.Request) bool // an audit
		lists  bool
	}{
		"audited": {},
		"expired": {func(w http.ResponseWriter, _ *http.Request) bool {
			writeStatus(w, http.StatusGone, "Expired")
			return true
		}, true},
		"not understood": {func(w http.ResponseWriter, _ *http.Request) bool {
			writeStatus(w, http.StatusBadRequest, "BadRequest")
			return true
		}, true},
		"without end": {func(w http.ResponseWriter, req *http.Request) bool {
			at := cmp.Or(req.URL.Query().Get("continue"), req.URL.Query().Get("resourceVersion"))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q,"continue":%[1]q},"items":[]}`, at)
			return true
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			first, release := true, make(chan struct{})
			fleet := fewKinds()
			l := newLives(t, fleet, func(r *rig) {
				populate(r)
				r.source.view[0] = newFakeServer(t, r.fleet.Members()[0], func(w http.ResponseWriter, req *http.Request) bool {
					if req.URL.Query().Get("watch") != "" || !strings.Contains(req.URL.RawQuery, "limit=50") {
						return false
					}
					mu.Lock()
					wait := first
					mu.Unlock()
					if wait {
						<-release
					}
					return c.answer != nil && c.answer(w, req)
				}).spec
			})
			m := l.fleet.Members()[0]
			l.restart(nil, auditNow)
			if err := l.manager.CheckContact(nameOf(m)); err == nil {
				t.Error("before anything is watched nothing holds writes")
			}
			l.synced(m)
			err := l.manager.CheckContact(nameOf(m))
			if err == nil || !strings.Contains(err.Error(), "5 scopes that were loaded have not been audited yet") {
				t.Errorf("before audits: %v", err)
			}
			if st := l.status(m); st.Audit == nil || st.Audit.Unaudited != 5 || !slices.ContainsFunc(st.Details, func(d clusterinformers.ScopeStatus) bool { return d.Unaudited }) {
				t.Errorf("before audits the status says %+v", st.Audit)
			}
			mu.Lock()
			first = false
			mu.Unlock()
			close(release)
			l.within(time.Minute, "all are audited", func() bool { return l.manager.CheckContact(nameOf(m)) == nil })
			if st := l.status(m); st.Audit.Unaudited != 0 {
				t.Errorf("the status says %+v", st.Audit)
			}
			for _, d := range l.status(m).Details {
				if d.Proved == nil || (d.Relists["audit"] > 0) != c.lists {
					t.Errorf("%s was proved %v and listed %v", d.Kind, d.Proved, d.Relists)
				}
			}
			l.exact(m, fleet.Kinds)
		})
	}
}

// writeStatus answers with an error of an API server.
func writeStatus(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`, reason, code)
}
