package clusterinformers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// TestAuditor_GoesOnAfterAPanic: what panics outside of audits ends neither the process nor the auditor.
func TestAuditor_GoesOnAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mb := unstartedInformer(t).member
		ctx, cancel := context.WithCancel(t.Context())
		mb.auditor.asked[nil] = nil // whatever looks at it panics
		done := make(chan struct{})
		go func() { defer close(done); mb.auditor.run(ctx) }()
		time.Sleep(minPanicDelay / 2)
		synctest.Wait()
		panics := &mb.manager.metrics.member(mb.name).panics
		if n := panics.n.Load(); n != 1 {
			t.Errorf("%d panics were counted, want 1", n)
		}
		mb.auditor.mu.Lock()
		delete(mb.auditor.asked, nil)
		mb.auditor.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := panics.n.Load(); n != 1 {
			t.Errorf("%d panics were counted an hour later", n)
		}
		cancel()
		<-done
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAudit_HasADeadline: each page of a list comes in time, and yet the resourceVersion would be
// compacted before the last.
func TestAudit_HasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := unstartedInformer(t)
		mb, p := i.member, i.listWatches[0]
		mb.manager.opts.Audit.Sample = -1
		raw, err := (&metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "c"}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		page, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Raw: raw}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		mb.conn.client = memberclient.New(&rest.Config{Host: "http://member"}, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(auditTimeout - time.Second)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("k8s\x00" + string(page))), Request: r}, nil
		})})
		mb.conn.up = true
		began := time.Now()
		c := &capture{resourceVersion: "5", snapshot: mb.manager.opts.Index.Newest(), exact: true, until: began.Add(auditDeadline)}
		var r AuditResult
		_, err = mb.auditor.read(t.Context(), p, c, &r)
		if took := time.Since(began); !errors.Is(err, errOverlong) || took >= 5*time.Minute || took < auditDeadline {
			t.Errorf("after %s and %d requests: %v", took, r.Requests, err)
		}
		if expiredOrUnsupported(err) {
			t.Error("it is taken for another failure")
		}
	})
}

// TestFleetBudget_CountsWhatIsUnderWay: what is not answered yet is charged, so that not all members
// pass the budget of all at a time, and each next waits for longer.
func TestFleetBudget_CountsWhatIsUnderWay(t *testing.T) {
	f := &fleetBudget{budget: audit.Budget{Requests: 1}}
	now, sent, last := time.Now(), 0, time.Duration(0)
	for range 1000 {
		if last = f.reserve(now); last == 0 {
			sent++
		}
	}
	if sent != 10 || last != 990*time.Second {
		t.Errorf("%d requests are under way at a time with a budget of one a second, on average over 10 s; the last of 1000 waits for %s", sent, last)
	}
}

// TestRepairDelay_GrowsUpToTheInterval: a loss alone delays nothing, and one after the other no more than that
// audits still come in their intervals.
func TestRepairDelay_GrowsUpToTheInterval(t *testing.T) {
	for repairs, want := range []time.Duration{0, 0, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute} {
		if got := repairDelay(repairs, 15*time.Minute); got != want {
			t.Errorf("after %d repairs %s, want %s", repairs, got, want)
		}
	}
	if got := repairDelay(1000, 2*time.Minute); got != 2*time.Minute {
		t.Errorf("after 1000 repairs %s", got)
	}
}

// TestAuditor_BacksOffWhileTheMemberFails: what the member does not answer is asked for less and less, down to every
// five minutes, or the interval if that is shorter, until it is answered.
func TestAuditor_BacksOffWhileTheMemberFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := unstartedInformer(t)
		a, p := i.member.auditor, i.listWatches[0]
		opts := &i.member.manager.opts.Audit
		opts.Interval, opts.FirstTier = 10*time.Minute, 3*time.Minute
		busy := apierrors.NewTooManyRequests("busy", 1)
		fail := func(what string, wants ...time.Duration) {
			t.Helper()
			for n, want := range wants {
				a.inconclusive(t.Context(), p, &AuditResult{}, busy)
				if got := time.Until(p.audit.notBefore); got != want {
					t.Errorf("%s: after failure %d it is audited again in %s, want %s", what, n+1, got, want)
				}
				time.Sleep(want)
			}
		}
		fail("at first", 30*time.Second, time.Minute, 2*time.Minute, 4*time.Minute, 5*time.Minute, 5*time.Minute)
		a.equal(p, &capture{at: time.Now()}, &audit.Result{}, &AuditResult{})
		fail("after a success", 30*time.Second, time.Minute)
		a.inconclusive(t.Context(), p, &AuditResult{Outcome: outcomeUnconfirmed}, nil)
		fail("after an answer", 30*time.Second, time.Minute, 2*time.Minute, 4*time.Minute)
		i.kind = "Secret"
		fail("in the first tier", 3*time.Minute)
		if p.repairs.Load() != nil {
			t.Error("it was ordered to list what would fail, too")
		}
	})
}

// TestListWatch_WitnessesAreWhatTheServerHas: what has no resourceVersion of its own, or no key that the server
// could be asked for, says nothing of its history, and would have the member listed after each connection.
func TestListWatch_WitnessesAreWhatTheServerHas(t *testing.T) {
	i := unstartedInformer(t)
	p, now := i.listWatches[0], time.Now()
	record := func(namespace, name, rv string) *object {
		rec := &aggregate.Record{Namespace: namespace, Name: name, UID: "u", ResourceVersion: rv, Body: []byte(`{}`)}
		return p.object(rec, nil, false)
	}
	want := func(what string, w witness) {
		t.Helper()
		if p.newest != w {
			t.Errorf("%s: the witness is %+v, want %+v", what, p.newest, w)
		}
	}
	first := witness{namespace: "b", name: "a", at: "5"}
	p.put(record("b", "a", "5"), now)
	want("an object", first)
	p.put(record("", "homeless", "6"), now)
	want("one that is left out", first)
	bare := record("b", "c", "")
	bare.rv = "7" // of the event before
	p.put(bare, now)
	want("one without a resourceVersion", first)
	if err := p.replace([]*object{record("b", "a", "5"), record("", "homeless", "9"), record("b", "d", "8")}, "9", now); err != nil {
		t.Fatal(err)
	}
	want("a list", witness{namespace: "b", name: "d", at: "8"})
}
