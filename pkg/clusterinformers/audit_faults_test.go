package clusterinformers_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// isAudit reports whether a request for Pods is an audit's.
func isAudit(req *http.Request) bool {
	q := req.URL.Query()
	return strings.HasSuffix(req.URL.Path, "/pods") && q.Get("watch") == "" && (q.Get("resourceVersionMatch") == "Exact" || q.Get("continue") != "")
}

// TestAudit_AsksAgainBeforeItAlarms: what a server says once, and not again, is no loss.
func TestAudit_AsksAgainBeforeItAlarms(t *testing.T) {
	var audits atomic.Int64
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		m := r.fleet.Members()[0]
		fill(t, m, 9)
		var server *fakeServer
		server = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			if !isAudit(req) || audits.Add(1) > 1 {
				return false
			}
			stale := httptest.NewRecorder()
			req.Header.Set("Accept", "application/json")
			server.forward(stale, req)
			var list map[string]any
			if err := json.Unmarshal(stale.Body.Bytes(), &list); err != nil {
				t.Error(err)
			}
			list["items"] = list["items"].([]any)[1:]
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(list)
			return true
		})
		r.source.view[0] = server.spec
	})
	if got := r.audited("Pod")["Pod"]; got.Outcome != "unconfirmed" || len(got.Differences) > 0 || audits.Load() != 2 {
		t.Errorf("after %d requests the audit says %+v", audits.Load(), got)
	}
	if st := r.status(r.fleet.Members()[0]); st.Audit.Lost != 0 || r.detail(r.fleet.Members()[0], "Pod").Relists["audit"] != 0 {
		t.Errorf("the status says %+v", st.Audit)
	}
	if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" {
		t.Errorf("the next audit says %+v", got)
	}
}

// TestAudit_ComparesOtherContentEachTime: the sample comes round, over pages of metadata.
func TestAudit_ComparesOtherContentEachTime(t *testing.T) {
	r, l := followLossy(t, func(o *clusterinformers.Options) { o.Audit.Sample = 400 })
	m := r.fleet.Members()[0]
	for n := range 1200 {
		ok(t, m.Create(pod(1000+n)))
	}
	r.until("all are held", func() bool { return len(r.held(m, "Pod")) == 1230 })
	l.set(func(e map[string]any) []map[string]any {
		e["object"].(map[string]any)["spec"].(map[string]any)["nodeName"] = "another"
		return []map[string]any{e}
	})
	touch(t, m, 2100, "x")
	r.touched(m, 2100, "x")
	l.set(nil)
	bodies, requests := 0, 0
	for range 4 {
		got := r.audited("Pod")["Pod"]
		if got.Objects != 1230 {
			t.Fatalf("the audit says %+v", got)
		}
		bodies += got.Bodies
		requests += got.Requests
		if got.Outcome == "different" {
			if got.Differences["content"] != 1 {
				t.Errorf("the audit says %+v", got)
			}
			r.exact(m, kindsOf("Pod"))
			return
		}
	}
	t.Errorf("of %d objects in %d requests none was found", bodies, requests)
}

// TestAudit_CostsNobodyElse: a member that does not answer audits, or answers with what is no list,
// holds up those of no other, is asked for no more than its budget, and raises no alarm.
func TestAudit_CostsNobodyElse(t *testing.T) {
	fleet := fewKinds()
	fleet.Members = 2
	r := follow(t, fleet, func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		o.Budget.ResponseBytes = 1 << 20
		for _, m := range r.fleet.Members() {
			fill(t, m, 9)
		}
	})
	bad, good := r.fleet.Members()[0], r.fleet.Members()[1]
	hang := sim.Fault{Verb: "list", Hang: true}
	clear := bad.Faults().Add(hang)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		asked <- r.manager.Audit(ctx, nameOf(bad), "", func(clusterinformers.AuditResult) {})
	}()
	r.until("it is asked", func() bool { return bad.Faults().Seen() > 0 })
	for range 3 {
		var outcomes []string
		ok(t, r.manager.Audit(t.Context(), nameOf(good), "", func(a clusterinformers.AuditResult) { outcomes = append(outcomes, a.Outcome) }))
		if strings.Join(outcomes, " ") != "equal equal equal equal equal" {
			t.Errorf("the other's audits say %v", outcomes)
		}
	}
	if n := bad.Faults().Seen(); n != 1 {
		t.Errorf("%d requests at a time", n)
	}
	cancel()
	if err := <-asked; err == nil {
		t.Error("an audit that was given up has no error")
	}
	clear()
	for name, f := range map[string]sim.Fault{
		"garbage": {Verb: "list", Kind: pods, Garbage: true}, "huge": {Verb: "list", Kind: pods, Huge: 8 << 20},
		"busy": {Verb: "list", Kind: pods, Status: http.StatusTooManyRequests}, "forbidden": {Verb: "list", Kind: pods, Status: http.StatusForbidden},
	} {
		clear := bad.Faults().Add(f)
		r.until(name+" is not taken for anything", func() bool {
			var got clusterinformers.AuditResult
			ok(t, r.manager.Audit(t.Context(), nameOf(bad), "Pod", func(a clusterinformers.AuditResult) { got = a }))
			return got.Outcome == "failed" && got.Message != ""
		})
		clear()
	}
	for _, m := range []*sim.Member{bad, good} {
		if st := r.status(m); st.Audit.Lost != 0 || !r.all(m, aggregate.Synced) {
			t.Errorf("%s: %+v", m.Name(), st.Audit)
		}
	}
}

// TestAudit_ShowsTheIntervalThatIsReached: where the budget does not suffice.
func TestAudit_ShowsTheIntervalThatIsReached(t *testing.T) {
	r := follow(t, fewKinds(), func(_ *rig, o *clusterinformers.Options) {
		o.Audit = clusterinformers.Audit{Interval: 100 * time.Millisecond, FirstTier: 100 * time.Millisecond, RequestsPerSecond: 0.001}
	})
	m := r.fleet.Members()[0]
	r.until("it is behind", func() bool {
		a := r.status(m).Audit
		return a != nil && a.Behind && a.Oldest > 300*time.Millisecond
	})
	if at := r.manager.Proved(nameOf(m), "Pod"); at.IsZero() {
		t.Error("a kind that was listed was never proved")
	}
	if at := r.manager.Proved("fleet/nobody", "Pod"); !at.IsZero() {
		t.Errorf("one that is not there was proved at %v", at)
	}
}
