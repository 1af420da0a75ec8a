package remediate_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_GateReviewsWhatWasSet: what comes to require approval, or loses it, between plan and
// write is held, whether or not a pass has seen that. The pass may be as early: so it is many times.
func TestDispatcher_GateReviewsWhatWasSet(t *testing.T) {
	type change = func(t *testing.T, f *fleet, d *running) (begin, happen func())
	free := func(generation string) change {
		return func(t *testing.T, _ *fleet, d *running) (begin, happen func()) {
			list, spec := intents("1", "m1 a"), approved("1", 1)
			spec.Approval.Required = nil
			return func() { d.set(t, spec, 20, list) }, func() {
				if err := d.SetIntents("b", approved(generation, 2), remediate.Totals{Fleet: 20}, list, true); err != nil {
					t.Error(err)
				}
			}
		}
	}
	share := func(t *testing.T, f *fleet, d *running) (begin, happen func()) {
		above, spec := int32(10), approved("1", 1)
		spec.Approval.Required[0].Above = &above // 2 of 20
		more := intents("1", "m1 a", "m1 b", "m1 c", "m1 d")
		return func() { d.set(t, spec, 20, more[:1]) }, func() {
			for n := range more[1:] {
				f.put(&more[n+1])
			}
			if err := d.SetIntents("b", spec, remediate.Totals{Fleet: 20}, more, true); err != nil {
				t.Error(err)
			}
		}
	}
	halt := func(t *testing.T, _ *fleet, d *running) (begin, happen func()) {
		spec := approved("1", 1)
		spec.Limits.Policy.Count = 1
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c", "m1 d"))
		generation := d.waiting(t)
		d.approve(generation)
		h := d.halt(t)
		d.approve(generation, d.waiting(t))
		synctest.Wait()
		return func() {
			if err := d.AcknowledgeUntil("b", h.ID, "bob", time.Now().Add(24*time.Hour)); err != nil {
				t.Error(err)
			}
		}, func() { d.approve(generation) }
	}
	for _, c := range []struct {
		what   string
		change change
		most   int // writes
	}{
		{"a requirement arrives", free("1"), 0},
		{"a requirement arrives with another generation", free("2"), 0},
		{"there is more than the share that needs no approval", share, 0},
		{"the Approvals of a halt are withdrawn", halt, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			for range 50 {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet()
					var begun atomic.Bool
					var happen func()
					happened := make(chan struct{})
					f.onDryRun = func(string) {
						if happen != nil && !begun.Swap(true) {
							happen()
							close(happened)
						}
						<-happened // what is written from here on is written after it
					}
					d := run(t, f, remediate.Options{})
					begin, then := c.change(t, f, d)
					happen = then
					synctest.Wait()
					begin()
					time.Sleep(time.Minute)
					if got := d.written(); strings.Count(got, "@") > c.most {
						t.Errorf("written: %s, at most %d may be", got, c.most)
					}
				})
			}
		})
	}
}

// refusing has the hub refuse the status of a Plan, once its name is known.
func (f *fleet) refusing(code int32, reason metav1.StatusReason) (name *atomic.Pointer[string], requests *atomic.Int64) {
	name, requests = &atomic.Pointer[string]{}, &atomic.Int64{}
	f.onHub = func(method, path string) *metav1.Status {
		if is := name.Load(); is == nil || method != http.MethodPut || !strings.Contains(path, "/plans/"+*is+"/") {
			return nil
		}
		requests.Add(1)
		return failure(code, reason, *name.Load())
	}
	return name, requests
}

// TestDispatcher_AnEndThatIsNotRecordedHoldsItsNameOnly: where the hub refuses to record the end of a
// Plan, other Plans of the policy are made all the same.
func TestDispatcher_AnEndThatIsNotRecordedHoldsItsNameOnly(t *testing.T) {
	refused := func(t *testing.T, f func(t *testing.T, f *fleet, refuse func(string), d *running)) {
		synctest.Test(t, func(t *testing.T) {
			fl := newFleet()
			name, _ := fl.refusing(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			f(t, fl, func(is string) { name.Store(&is) }, run(t, fl, remediate.Options{}))
		})
	}
	t.Run("another generation", func(t *testing.T) {
		refused(t, func(t *testing.T, f *fleet, refuse func(string), d *running) {
			d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
			refuse(d.waiting(t).Name)
			d.set(t, approved("2", 2), 20, intents("1", "m1 a"))
			time.Sleep(time.Hour)
			if got, want := f.states(), "Generation Waiting 1, Generation Waiting 1"; got != want {
				t.Errorf("the hub has %s, want %s", got, want)
			}
		})
	})
	t.Run("a halt", func(t *testing.T) {
		refused(t, func(t *testing.T, f *fleet, refuse func(string), d *running) {
			spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
			d.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
			h := d.halt(t)
			refuse(h.Plan)
			if err := d.Acknowledge("b", h.ID, "ann"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			spec.Generation = "2"
			d.set(t, spec, 20, intents("2", "m1 c", "m1 d", "m1 e"))
			time.Sleep(time.Hour)
			again := d.halt(t)
			if err := d.Acknowledge("b", again.ID, "ann"); err != nil || again.Plan == "" {
				t.Errorf("halt %s has Plan %q: %v; the hub has %s", again.ID, again.Plan, err, f.states())
			}
		})
	})
	t.Run("a dry run", func(t *testing.T) {
		refused(t, func(t *testing.T, f *fleet, refuse func(string), d *running) {
			spec := approved("1", 1)
			spec.DryRun = true
			d.set(t, spec, 20, intents("1", "m1 a"))
			time.Sleep(time.Minute)
			refuse(f.plans()[0].Name)
			spec.DryRun = false
			d.set(t, spec, 20, intents("1", "m1 a"))
			time.Sleep(time.Hour)
			if got := f.states(); !strings.Contains(got, "Generation Waiting 1") {
				t.Errorf("the hub has %s", got)
			}
		})
	})
	t.Run("the same name", func(t *testing.T) {
		refused(t, func(t *testing.T, f *fleet, refuse func(string), d *running) {
			f.onDryRun = nil
			d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
			first := d.waiting(t)
			refuse(first.Name)
			d.set(t, approved("2", 2), 20, intents("1", "m1 a"))
			time.Sleep(time.Minute)
			d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
			time.Sleep(time.Hour)
			st, _ := d.Status("b")
			if want := "no Plan can be made: the end of Plan " + first.Name + ", which has the same targets, is not recorded yet"; st.Waiting != want {
				t.Errorf("it waits for %q, want %q", st.Waiting, want)
			}
		})
	})
}

// TestDispatcher_ReadsAgainLessAndLess: a hub that says again and again that somebody else has written
// a Plan is not asked for all that lasts as fast as it answers.
func TestDispatcher_ReadsAgainLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		name, requests := f.refusing(http.StatusConflict, metav1.StatusReasonConflict)
		refuse := f.onHub
		f.onHub = func(method, path string) *metav1.Status {
			time.Sleep(10 * time.Millisecond)
			return refuse(method, path)
		}
		d := run(t, f, remediate.Options{})
		d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
		time.Sleep(time.Second)
		is := d.waiting(t).Name
		name.Store(&is)
		before := f.listed()
		d.set(t, approved("2", 2), 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		if puts, lists := requests.Load(), f.listed()-before; puts > 10 || lists > 10 {
			t.Errorf("%d requests and %d lists of all Actions within a minute", puts, lists)
		}
		name.Store(nil)
		time.Sleep(2 * time.Minute)
		if got := f.states(); got != "Generation Superseded 1, Generation Waiting 1" && got != "Generation Waiting 1, Generation Superseded 1" {
			t.Errorf("the hub has %s", got)
		}
	})
}

// TestDispatcher_SaysThatApprovalsAreNotKnown: what waits for that waits for no Plan.
func TestDispatcher_SaysThatApprovalsAreNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var change func()
		f.onDryRun = func(string) { change() }
		d := run(t, f, remediate.Options{})
		d.set(t, approved("1", 1), 20, intents("1", "m1 a"))
		p := d.waiting(t)
		change = func() {
			d.SetApprovals("b", map[types.UID]remediate.Approved{p.UID: {Required: 2, Unknown: true}})
		}
		d.approve(p)
		time.Sleep(time.Minute)
		d.expect(t, "unknown", "")
		if st, _ := d.Status("b"); st.Waiting != "it is not known now which Approvals count" {
			t.Errorf("it waits for %q", st.Waiting)
		}
	})
}
