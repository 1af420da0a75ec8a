package bulkrollback_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
)

// TestController_EachTargetOnceWheneverItEnds: a process that ends after any request to the hub
// leaves what the next one completes: one Plan, and each Action rolled back once.
func TestController_EachTargetOnceWheneverItEnds(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	for range 12 {
		most := int64(random.IntN(40))
		t.Run(fmt.Sprint("after ", most, " requests"), func(t *testing.T) {
			r := newRig(t)
			r.act("a-1", "a", 1)
			r.act("a-2", "a", 2)
			for _, name := range []string{"b", "c", "d", "e", "f"} {
				r.act(name, name, 3)
			}
			r.rollback(nil)
			ctx, kill := context.WithCancel(t.Context())
			var sent atomic.Int64
			join := r.run(ctx, func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if sent.Add(1) > most {
						kill()
						return nil, errors.New("the process has ended")
					}
					return next.RoundTrip(req)
				})
			})
			if err := kube.Until(t.Context(), time.Minute, func() error {
				if ctx.Err() == nil && !r.status().State.IsFinal() {
					return errors.New("it goes on")
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			kill()
			join()

			ctx, stop := context.WithCancel(t.Context())
			join = r.run(ctx, nil)
			got := r.expect(v1alpha1.RollbackDone, "")
			if got.Planned != 6 || got.Done != 6 || got.Failed+got.Refused != 0 {
				t.Errorf("status %+v", got)
			}
			if err := kube.Until(t.Context(), time.Minute, func() error {
				live := 0
				for _, p := range r.plans() {
					if p.Status.State == v1alpha1.PlanDone && p.Status.Written == 6 && p.Name == got.Plan {
						live++
					} else if p.Status.State == v1alpha1.PlanWaiting || p.Status.State == v1alpha1.PlanApproved {
						live = -1
						break
					}
				}
				if live != 1 {
					return fmt.Errorf("plans %+v", r.plans())
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			stop()
			join()
			if want := map[string]int{"a-1": 1, "a-2": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}; !maps.Equal(r.members.done, want) {
				t.Errorf("rolled back %v", r.members.done)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// start runs a Controller until the test ends.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	join := r.run(ctx, nil)
	r.t.Cleanup(func() {
		cancel()
		join()
	})
}

// enforce creates FleetPolicy hosts, which enforces.
func (r *rig) enforce() {
	r.t.Helper()
	create(r.t, v1alpha1.FleetPolicies, "hosts", &v1alpha1.FleetPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "FleetPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: "hosts"},
		Spec: v1alpha1.FleetPolicySpec{Package: "acme.hosts", Mode: v1alpha1.Enforce},
	}, nil)
	r.members.set(func(s *remediate.CorrectionState) { s.Suspended = false })
}

func TestController_RefusesWhoMayNotAndWhatIsNotProven(t *testing.T) {
	t.Run("no verb", func(t *testing.T) {
		r := newRig(t)
		r.act("a", "a", 1)
		r.rollback(func(s *v1alpha1.RollbackSpec) { s.By = "eve" })
		r.start()
		if got := r.expect(v1alpha1.RollbackRefused, "NotAllowed"); !strings.Contains(got.Message, "RBAC does not grant eve the verb rollback on FleetPolicy hosts") {
			t.Errorf("%s", got.Message)
		}
	})
	t.Run("created before names were proven", func(t *testing.T) {
		r := newRig(t)
		r.act("a", "a", 1)
		r.rollback(nil)
		r.people.since = time.Now().Add(time.Hour)
		r.start()
		r.expect(v1alpha1.RollbackRefused, "Unproven")
	})
	t.Run("not proven now", func(t *testing.T) {
		r := newRig(t)
		r.act("a", "a", 1)
		r.rollback(nil)
		r.people.since, r.people.why = time.Time{}, "it is not installed"
		r.start()
		if got := r.expect(v1alpha1.RollbackWaiting, "Unproven"); !strings.Contains(got.Message, "it is not installed") {
			t.Errorf("%s", got.Message)
		}
		if len(r.members.done) > 0 || len(r.plans()) > 0 {
			t.Errorf("rolled back %v, Plans %v", r.members.done, r.plans())
		}
	})
}

// TestController_WaitsForWhatHoldsIt: a policy that would write the same again, stops, approval.
func TestController_WaitsForWhatHoldsIt(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.enforce()
	r.people.approve(remediate.Approved{Required: 1})
	r.rollback(nil)
	r.start()
	r.expect(v1alpha1.RollbackWaiting, "PolicyEnforces")
	r.members.set(func(s *remediate.CorrectionState) { s.Stopped = "the policy is stopped: incident" })
	r.expect(v1alpha1.RollbackWaiting, "Stopped")
	r.members.set(func(s *remediate.CorrectionState) { s.Stopped, s.Generation = "", generation2 }) // it was changed
	got := r.expect(v1alpha1.RollbackWaiting, "Approval")
	if err := kube.Until(t.Context(), time.Minute, func() error {
		if p := r.plans(); len(p) != 1 || p[0].Status.State != v1alpha1.PlanWaiting || p[0].Status.Required != 1 || p[0].Name != got.Plan && got.Plan != "" {
			return fmt.Errorf("plans %+v", p)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	r.people.approve(remediate.Approved{Required: 1, Unknown: true})
	if len(r.members.done) > 0 {
		t.Errorf("rolled back %v without approval", r.members.done)
	}
	r.people.approve(remediate.Approved{Required: 1, Met: true, Given: []v1alpha1.GivenApproval{{Name: "a", By: "bob", At: metav1.Now(), Expires: metav1.NewTime(time.Now().Add(time.Hour))}}})
	if got := r.expect(v1alpha1.RollbackDone, ""); got.Done != 1 {
		t.Errorf("%+v", got)
	}
	if asked := r.members.asked[0]; asked.WhileStopped || asked.Force || !strings.HasPrefix(asked.Reason, "rolled back by ann: it is wrong (Rollback back)") {
		t.Errorf("asked for %+v", asked)
	}
}

// TestController_WhileStoppedIsAskedFor: and what was asked for reaches each write.
func TestController_WhileStoppedIsAskedFor(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.enforce()
	r.members.set(func(s *remediate.CorrectionState) { s.Stopped = "all actions are stopped: incident" })
	r.rollback(func(s *v1alpha1.RollbackSpec) { s.WhileStopped, s.Force = true, true })
	r.start()
	r.expect(v1alpha1.RollbackDone, "")
	if asked := r.members.asked[0]; !asked.WhileStopped || !asked.Force {
		t.Errorf("asked for %+v", asked)
	}
}

// TestController_EndsWithItsApprovals: what is left then is not written any more.
func TestController_EndsWithItsApprovals(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.act("b", "b", 1)
	r.members.answers["b"] = func() (*remediate.Action, error) { return nil, remediate.ErrNotNow }
	r.people.approve(remediate.Approved{Required: 1, Met: true})
	r.rollback(nil)
	r.start()
	r.expect(v1alpha1.RollbackRunning, "")
	r.people.approve(remediate.Approved{Required: 1})
	if got := r.expect(v1alpha1.RollbackExpired, "Approval"); got.Done != 1 || got.Planned != 2 {
		t.Errorf("%+v", got)
	}
}

// TestController_SaysWhatIsNotRolledBack: by reason, with an Action of each.
func TestController_SaysWhatIsNotRolledBack(t *testing.T) {
	r := newRig(t)
	answers := map[string]error{"changed": remediate.ErrChanged, "gone": remediate.ErrNoAction, "irreversible": remediate.ErrIrreversible}
	phases := map[string]v1alpha1.ActionPhase{"protected": v1alpha1.PhaseProtected, "contended": v1alpha1.PhaseContended, "noop": v1alpha1.PhaseNoOp}
	for name, err := range answers {
		r.act(name, name, 1)
		r.members.answers[name] = func() (*remediate.Action, error) { return nil, fmt.Errorf("action %q: %w", name, err) }
	}
	for name, phase := range phases {
		r.act(name, name, 1)
		r.members.answers[name] = func() (*remediate.Action, error) {
			return &remediate.Action{Name: name + "-back", Phase: phase, Message: "so it is"}, nil
		}
	}
	r.act("fine", "fine", 1)
	tries := 0
	r.act("later", "later", 1)
	r.members.answers["later"] = func() (*remediate.Action, error) {
		if tries++; tries < 2 {
			return nil, errors.New("the member is away")
		}
		return nil, remediate.ErrRolledBack
	}
	r.rollback(nil)
	r.start()
	got := r.expect(v1alpha1.RollbackDone, "")
	if got.Planned != 8 || got.Done != 3 || got.Refused != 4 || got.Failed != 1 {
		t.Errorf("%+v", got)
	}
	reasons := map[string]int32{}
	for _, o := range got.Outcomes {
		reasons[string(o.Result)+" "+o.Reason+" "+o.Action] = o.Targets
	}
	if want := map[string]int32{
		"Refused Changed changed": 1, "Refused Gone gone": 1, "Refused Irreversible irreversible": 1, "Refused Protected protected": 1, "Failed Contended contended": 1,
	}; !maps.Equal(reasons, want) {
		t.Errorf("outcomes %v", reasons)
	}
}

// TestController_DeletedEnds: nothing more is written, and the Plan ends.
func TestController_DeletedEnds(t *testing.T) {
	r := newRig(t)
	r.act("a", "a", 1)
	r.people.approve(remediate.Approved{Required: 2})
	r.rollback(nil)
	r.start()
	r.expect(v1alpha1.RollbackWaiting, "Approval")
	if err := kube.Until(t.Context(), time.Minute, func() error {
		if p := r.plans(); len(p) != 1 || p[0].Status.State != v1alpha1.PlanWaiting {
			return fmt.Errorf("plans %+v", p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := shared.client.Delete().Resource(v1alpha1.Rollbacks).Name("back").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := kube.Until(t.Context(), time.Minute, func() error {
		if p := r.plans(); p[0].Status.State != v1alpha1.PlanSuperseded {
			return fmt.Errorf("plans %+v", p)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if len(r.members.done) > 0 {
		t.Errorf("rolled back %v", r.members.done)
	}
}
