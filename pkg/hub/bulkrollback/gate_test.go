package bulkrollback_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/kube"
)

// TestController_AsksBeforeEachAction: a target may have many Actions. When the Approvals end, or
// the policy enforces again, while the first is being rolled back, the others are not.
func TestController_AsksBeforeEachAction(t *testing.T) {
	for name, hold := range map[string]struct {
		by     func(*rig)
		state  v1alpha1.RollbackState
		reason string
	}{
		"Approvals": {func(r *rig) { r.people.approve(remediate.Approved{Required: 1}) }, v1alpha1.RollbackExpired, "Approval"},
		"enforces": {func(r *rig) {
			r.enforce()
			r.members.set(func(s *remediate.CorrectionState) { s.Suspended = false })
		}, v1alpha1.RollbackWaiting, "PolicyEnforces"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.act("a-1", "a", 1)
			r.act("a-2", "a", 2)
			r.people.approve(remediate.Approved{Required: 1, Met: true})
			began, goOn := make(chan struct{}), make(chan struct{})
			var admit func() error
			r.members.answers["a-2"] = func() (*remediate.Action, error) {
				r.members.mu.Lock()
				admit = r.members.asked[len(r.members.asked)-1].Admit
				r.members.mu.Unlock()
				close(began)
				<-goOn
				return &remediate.Action{Name: "a-2-back", Phase: v1alpha1.PhaseSucceeded}, nil
			}
			r.rollback(nil)
			r.start()
			<-began
			if err := admit(); err != nil {
				t.Errorf("before: %v", err)
			}
			hold.by(r)
			err := kube.Until(t.Context(), time.Minute, func() error {
				if err := admit(); !errors.Is(err, remediate.ErrNotNow) {
					return fmt.Errorf("the gate says %w", err)
				}
				return nil
			})
			close(goOn)
			if err != nil {
				t.Fatal(err)
			}
			r.expect(hold.state, hold.reason)
			if len(r.members.done) > 0 {
				t.Errorf("rolled back %v", r.members.done)
			}
		})
	}
}

// TestController_WaitsWhereThePolicyReturned: to an earlier generation, which has written some of
// what is rolled back, whichever leader has frozen the Plan.
func TestController_WaitsWhereThePolicyReturned(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.generation = generation2
	r.act("b", "b", 2)
	r.people.approve(remediate.Approved{Required: 1})
	r.rollback(nil)
	ctx, stop := context.WithCancel(t.Context())
	join := r.run(ctx, nil)
	r.expect(v1alpha1.RollbackWaiting, "Approval")
	if p := r.plans(); len(p) != 1 || p[0].Spec.Generation != generation2 {
		t.Errorf("plans %+v", p)
	}
	r.enforce()
	r.members.set(func(s *remediate.CorrectionState) { s.Suspended, s.Generation = false, generation1 })
	r.people.approve(remediate.Approved{Required: 1, Met: true})
	r.expect(v1alpha1.RollbackWaiting, "PolicyEnforces")
	stop()
	join()
	ctx, stop = context.WithCancel(t.Context())
	join = r.run(ctx, nil) // another leader
	defer join()
	defer stop()
	if err := r.looksAgain(); err != nil {
		t.Fatal(err)
	}
	r.expect(v1alpha1.RollbackWaiting, "PolicyEnforces")
	if len(r.members.done) > 0 {
		t.Errorf("rolled back %v", r.members.done)
	}
	r.members.set(func(s *remediate.CorrectionState) { s.Generation = strings.Repeat("3", 32) })
	if got := r.expect(v1alpha1.RollbackDone, ""); got.Done != 2 {
		t.Errorf("%+v", got)
	}
}

// looksAgain waits until the Controller has asked what the policy does a few times more.
func (r *rig) looksAgain() error {
	r.members.mu.Lock()
	was := r.members.looks
	r.members.mu.Unlock()
	return kube.Until(r.t.Context(), time.Minute, func() error {
		r.members.mu.Lock()
		defer r.members.mu.Unlock()
		if r.members.looks < was+6 {
			return errors.New("it does not look")
		}
		return nil
	})
}

// TestController_ReadsActionsOfFewAtOnce: all Actions of a policy are read in full, which nobody
// may multiply.
func TestController_ReadsActionsOfFewAtOnce(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	names := []string{"back", "back-2", "back-3", "back-4", "back-5"}
	for _, name := range names {
		r.rollbackNamed(name, nil)
	}
	var mu sync.Mutex
	reading, most, came := 0, 0, false
	waits := func() int {
		list := &v1alpha1.RollbackList{}
		if err := shared.client.Get().Resource(v1alpha1.Rollbacks).Do(t.Context()).Into(list); err != nil {
			t.Error(err)
		}
		n := 0
		for i := range list.Items {
			if list.Items[i].Status.Reason == "Unsettled" {
				n++
			}
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	join := r.run(ctx, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/actions") {
				mu.Lock()
				reading++
				most = max(most, reading)
				mu.Unlock()
				defer func() {
					mu.Lock()
					reading--
					mu.Unlock()
				}()
				// Until the others have come to it.
				err := kube.Until(req.Context(), time.Minute, func() error {
					mu.Lock()
					defer mu.Unlock()
					if n := waits(); !came && most+n < len(names) {
						return fmt.Errorf("%d read, %d wait", reading, n)
					}
					came = true // those that end are not counted any more
					return nil
				})
				if err != nil {
					return nil, err
				}
			}
			return next.RoundTrip(req)
		})
	})
	defer join()
	defer stop()
	r.expect(v1alpha1.RollbackDone, "")
	mu.Lock()
	defer mu.Unlock()
	if most > 2 {
		t.Errorf("%d read at once", most)
	}
}

// TestController_FailsLessAndLessOften: what the hub refuses for good is not asked for each second,
// with all Actions of the policy read before.
func TestController_FailsLessAndLessOften(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.rollback(nil)
	tried := make(chan time.Time, 100)
	var refuses atomic.Bool
	refuses.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	join := r.run(ctx, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/plans") && refuses.Load() {
				tried <- time.Now()
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"a quota"}`
				return &http.Response{
					StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
				}, nil
			}
			return next.RoundTrip(req)
		})
	})
	defer join()
	defer stop()
	<-tried
	second, third := <-tried, <-tried
	if got := third.Sub(second); got < 1900*time.Millisecond {
		t.Errorf("tried again after %v", got)
	}
	r.expect(v1alpha1.RollbackWaiting, "Failed")
	refuses.Store(false)
	r.expect(v1alpha1.RollbackDone, "")
}

// TestController_BeingDeletedEnds: a finalizer of somebody else does not keep it going.
func TestController_BeingDeletedEnds(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.people.approve(remediate.Approved{Required: 2})
	r.rollback(nil)
	finalizers := func(list string) {
		t.Helper()
		body := []byte(`{"metadata":{"finalizers":` + list + `}}`)
		if err := shared.client.Patch(types.MergePatchType).Resource(v1alpha1.Rollbacks).Name("back").Body(body).Do(context.WithoutCancel(t.Context())).Error(); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["example.com/waits"]`)
	defer finalizers(`null`)
	r.start()
	r.expect(v1alpha1.RollbackWaiting, "Approval")
	if err := shared.client.Delete().Resource(v1alpha1.Rollbacks).Name("back").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := kube.Until(t.Context(), time.Minute, func() error {
		if p := r.plans(); len(p) != 1 || p[0].Status.State != v1alpha1.PlanSuperseded {
			return fmt.Errorf("plans %+v", p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(r.members.done) > 0 {
		t.Errorf("rolled back %v", r.members.done)
	}
}
