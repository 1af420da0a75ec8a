package clusterinformers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/clusterinformers"
)

// TestAudit_EndsWhereAMemberNeverStopsPaging: a list that never ends, with objects or without, fails the audit
// and keeps no other kind's waiting.
func TestAudit_EndsWhereAMemberNeverStopsPaging(t *testing.T) {
	for name, perPage := range map[string]int{"empty pages": 0, "pages of what is not held": 1000} {
		t.Run(name, func(t *testing.T) {
			var pages, names atomic.Int64
			r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
				auditNow(o)
				o.Audit.RequestsPerSecond, o.Audit.FleetRequestsPerSecond, o.Audit.Sample = 1e6, 1e6, -1
				m := r.fleet.Members()[0]
				fill(t, m, 9)
				r.source.view[0] = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
					if !isAudit(req) {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q,"continue":"c%d"},"items":[`, m.ResourceVersion(), pages.Add(1))
					for n := range perPage {
						if n > 0 {
							fmt.Fprint(w, ",")
						}
						fmt.Fprintf(w, `{"metadata":{"namespace":"default","name":"x%d","uid":"u","resourceVersion":"1"}}`, names.Add(1))
					}
					fmt.Fprint(w, "]}")
					return true
				}).spec
			})
			m := r.fleet.Members()[0]
			if got := r.audited("Pod")["Pod"]; got.Outcome != "failed" || got.Message == "" || got.Requests > 300 {
				t.Errorf("after %d pages for 9 Pods the audit says %+v", pages.Load(), got)
			}
			if got := r.audited("Secret")["Secret"]; got.Outcome != "equal" {
				t.Errorf("of Secrets the audit says %+v", got)
			}
			if perPage == 0 {
				return
			}
			// What is so much more may be what was lost: that is for a list to say.
			r.until("it is listed", func() bool { return r.audited("Pod")["Pod"].Outcome == "listed" })
			r.until("it was", func() bool { return r.detail(m, "Pod").Relists["audit"] > 0 })
			if lost := r.status(m).Audit.Lost; lost != 0 || len(r.held(m, "Pod")) != 9 {
				t.Errorf("%d are said to be lost", lost)
			}
		})
	}
}

// TestAudit_OutlivesPanics: neither the one who is told of a loss nor a handler of logs ends the process, or the
// auditor: a loss is repaired, counted once and answered all the same.
func TestAudit_OutlivesPanics(t *testing.T) {
	for _, message := range []string{"", "events were lost: what is held differs from the member's, listing it again", "audit failed", "reporting lost events failed"} {
		t.Run(message, func(t *testing.T) {
			r, l := followLossy(t, func(o *clusterinformers.Options) {
				o.OnLoss = func(clusterinformers.Loss) { panic("the receiver") }
			})
			m := r.fleet.Members()[0]
			l.set(func(map[string]any) []map[string]any { return nil })
			ok(t, m.Create(pod(100)))
			r.until("it is dropped", func() bool { return r.detail(m, "Pod").Applied == m.ResourceVersion() })
			l.set(nil)
			r.log.panicOn(message, 1)
			if got := r.audited("Pod")["Pod"]; got.Outcome != "different" || !got.Repaired {
				t.Errorf("the audit says %+v", got)
			}
			for range 3 {
				if got := r.audited("Pod")["Pod"]; got.Outcome != "equal" {
					t.Errorf("the next audit says %+v", got)
				}
			}
			if n := r.status(m).Audit.Lost; n != 1 || len(r.held(m, "Pod")) != 31 {
				t.Errorf("one object was lost: %d are counted, and %d of 31 are held", n, len(r.held(m, "Pod")))
			}
			if n := r.metric("federator_member_panics_total", nameOf(m), ""); n != 1 {
				t.Errorf("%v panics were counted, want 1", n)
			}
		})
	}
}

// TestAudit_IsOfOneResourceVersion: of a server whose later pages are of what is newest nothing is taken for
// lost that is in flight.
func TestAudit_IsOfOneResourceVersion(t *testing.T) {
	l, release := &lossy{}, make(chan struct{})
	var later atomic.Int64
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		o.Audit.Sample = 5
		m := r.fleet.Members()[0]
		fill(t, m, 30)
		var server *fakeServer
		server = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			q := req.URL.Query()
			switch {
			case strings.HasSuffix(req.URL.Path, "/pods") && q.Get("watch") != "":
				req.Header.Set("Accept", "application/json")
				server.forward(&lossyWriter{ResponseWriter: w, lossy: l}, req)
				return true
			case isAudit(req) && q.Get("continue") != "":
				all, newest := httptest.NewRecorder(), req.Clone(req.Context())
				newest.URL.RawQuery = ""
				newest.Header.Set("Accept", "application/json")
				server.forward(all, newest)
				var list map[string]any
				if err := json.Unmarshal(all.Body.Bytes(), &list); err != nil {
					t.Error(err)
				}
				list["items"] = list["items"].([]any)[5:]
				later.Add(1)
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(list)
				return true
			}
			return false
		})
		r.source.view[0] = server.spec
	})
	m := r.fleet.Members()[0]
	l.set(func(e map[string]any) []map[string]any { <-release; return []map[string]any{e} })
	for n := range 30 {
		touch(t, m, n, "in flight")
	}
	results := make(chan clusterinformers.AuditResult, 1)
	asked := make(chan error, 1)
	go func() {
		asked <- r.manager.Audit(t.Context(), "", "Pod", func(a clusterinformers.AuditResult) { results <- a })
	}()
	r.until("later pages were read twice", func() bool { return later.Load() >= 2 })
	r.during(200*time.Millisecond, "nothing is lost", func() bool { return r.status(m).Audit.Lost == 0 })
	close(release)
	ok(t, <-asked)
	if got := <-results; got.Outcome == "different" || r.status(m).Audit.Lost > 0 {
		t.Errorf("nothing was lost, events are in flight, and the audit says %+v", got)
	}
}

// TestAudit_CapturesWhenItsTurnHasCome: what is compared is of after the wait for the budget. The member would
// have forgotten the resourceVersion of before it, and its snapshot would be kept meanwhile.
func TestAudit_CapturesWhenItsTurnHasCome(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		o.Audit.RequestsPerSecond = 0.5 // and five of ten seconds at once
		m := r.fleet.Members()[0]
		fill(t, m, 9)
		r.source.view[0] = newFakeServer(t, m, func(_ http.ResponseWriter, req *http.Request) bool {
			if isAudit(req) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, req.URL.Query().Get("resourceVersion"))
			}
			return false
		}).spec
	})
	requests := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
	m := r.fleet.Members()[0]
	for range 5 {
		r.audited("Pod")
	}
	done := make(chan error, 1)
	go func() {
		done <- r.manager.Audit(t.Context(), "", "Pod", func(clusterinformers.AuditResult) {})
	}()
	r.during(300*time.Millisecond, "the next waits", func() bool { return len(requests()) == 5 })
	for n := range 10 {
		touch(t, m, n%9, fmt.Sprint(n))
	}
	r.touched(m, 0, "9")
	at := r.detail(m, "Pod").Applied
	ok(t, <-done)
	all := requests()
	if got := all[len(all)-1]; got != at {
		t.Errorf("after %s was held, the audit that waited asks for %v", at, all)
	}
}

// TestAudit_SamplesComeRoundWhereLessIsHeldThanListed: of a kind without end, too, the content of all that is
// held is compared, wherever in the list it is.
func TestAudit_SamplesComeRoundWhereLessIsHeldThanListed(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		o.Kinds = []clusterinformers.KindRule{{Kind: "ConfigMap", Share: 10}, {Kind: "*"}}
		o.Budget.Objects, o.Audit.Sample = 100, 5
		for n := range 30 {
			ok(t, r.fleet.Members()[0].Create(configMap(n)))
		}
	})
	bodies := 0
	for range 6 {
		got := r.audited("ConfigMap")["ConfigMap"]
		if got.Outcome != "equal" {
			t.Fatalf("the audit says %+v", got)
		}
		bodies += got.Bodies
	}
	if held := len(r.held(r.fleet.Members()[0], "ConfigMap")); bodies != held || held == 0 || held == 30 {
		t.Errorf("%d of 30 are held, and six audits with samples of 5 have compared %d", held, bodies)
	}
}

// TestAudit_ALargeSampleMakesNoSmallPages: that a page of objects is too large says nothing of pages of
// metadata, and nothing of pages of later objects.
func TestAudit_ALargeSampleMakesNoSmallPages(t *testing.T) {
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		o.Budget.ResponseBytes = 1 << 20
		for n := range 640 {
			c := configMap(n)
			c.Name = fmt.Sprintf("cm-%04d", n)
			if n < 20 {
				c.Data["key"] = strings.Repeat("x", 200<<10)
			}
			ok(t, r.fleet.Members()[0].Create(c))
		}
	})
	bodies := 0
	for range 20 {
		got := r.audited("ConfigMap")["ConfigMap"]
		if got.Outcome != "equal" || got.Requests > 12 {
			t.Fatalf("640 objects, which are two pages of metadata: %+v", got)
		}
		if bodies = got.Bodies; bodies == 50 {
			return
		}
	}
	t.Errorf("pages of objects have grown to %d only", bodies)
}

// TestAudit_IsOverForWhoHasHungUp: what somebody has asked for is not audited once he has hung up.
func TestAudit_IsOverForWhoHasHungUp(t *testing.T) {
	var audits atomic.Int64
	hold := make(chan struct{})
	r := follow(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		auditNow(o)
		m := r.fleet.Members()[0]
		fill(t, m, 9)
		r.source.view[0] = newFakeServer(t, m, func(_ http.ResponseWriter, req *http.Request) bool {
			if req.URL.Query().Get("resourceVersionMatch") == "Exact" {
				audits.Add(1)
				<-hold
			}
			return false
		}).spec
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- r.manager.Audit(ctx, "", "", func(clusterinformers.AuditResult) {}) }()
	r.until("it is asked", func() bool { return audits.Load() == 1 })
	cancel()
	if err := <-gone; err == nil {
		t.Error("an audit that was given up has no error")
	}
	close(hold)
	r.during(500*time.Millisecond, "no other kind is audited", func() bool { return audits.Load() == 1 })
	if got := r.audited("Secret")["Secret"]; got.Outcome != "equal" {
		t.Errorf("of Secrets the next audit says %+v", got)
	}
}
