package planstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// named returns the Plans of a policy, as they are listed.
func (p *process) named(t *testing.T, name v1alpha1.PolicyName) []v1alpha1.Plan {
	t.Helper()
	all, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p v1alpha1.Plan) bool { return p.Spec.Policy != name })
}

// whole fails unless the policy has one Plan, which waits, with these targets.
func whole(t *testing.T, name v1alpha1.PolicyName, want []plans.Target, notes ...string) *v1alpha1.Plan {
	t.Helper()
	p := newProcess(t)
	all := p.named(t, name)
	if len(all) != 1 || all[0].Status.State != v1alpha1.PlanWaiting || all[0].Status.Required != 2 || !all[0].Status.Since.Equal(&since) {
		t.Fatalf("%d Plans: %+v", len(all), all)
	}
	got, err := p.Targets(t.Context(), &all[0])
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d targets of %d, %v", len(got), len(want), err)
	}
	note := got[0].Message[:1]
	if author := all[0].Spec.Authors[0]; !slices.Contains(notes, note) || author != "jo"+v1alpha1.UserName(got[0].Message) {
		t.Errorf("note %q, want one of %q; author %q", note, notes, author)
	}
	for i := range got {
		w := want[i]
		if w.Message = note + w.Message[1:]; got[i] != w {
			t.Fatalf("target %d is %+v, not %+v", i, got[i], w)
		}
	}
	return &all[0]
}

// TestStore_CreateContinuesWhereAProcessEnded: a process ends at each step of recording a Plan.
// Another one, which would show the same of its targets or something else, completes it.
func TestStore_CreateContinuesWhereAProcessEnded(t *testing.T) {
	for _, note := range []string{"1", "2"} {
		t.Run(note, func(t *testing.T) {
			t.Parallel()
			for step := 1; ; step++ {
				name := newPolicy()
				targets := targetsOf(700, "1")
				plan, parts := planOf(t, name, targets)
				if len(parts) != 2 {
					t.Fatalf("%d parts", len(parts))
				}
				first := newProcess(t)
				ctx, ended := first.endAt(t.Context(), step)
				_, err := first.Create(ctx, plan, parts)
				if died := ended(); died != (err != nil) {
					t.Fatalf("step %d: ended: %t, %v", step, died, err)
				}
				again, moreParts := planOf(t, name, targetsOf(700, note))
				if again.Name != plan.Name {
					t.Fatal("other notes make another Plan")
				}
				made, err := newProcess(t).Create(t.Context(), again, moreParts)
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				// What waits already stays as it is.
				got := whole(t, name, targets, "1", note)
				if got.UID != made.UID || got.ResourceVersion != made.ResourceVersion || made.Status.State != v1alpha1.PlanWaiting {
					t.Fatalf("step %d: returned %+v, recorded %+v", step, made, got)
				}
				if !ended() {
					if step < 10 {
						t.Errorf("it took %d steps only", step)
					}
					return
				}
			}
		})
	}
}

// TestStore_CreateByTwoProcesses: while one process records a Plan, another one does so
// completely, before any of its requests; it may continue what a third one began. The Plan is
// whole, and only one: what waits already stays as it is.
func TestStore_CreateByTwoProcesses(t *testing.T) {
	for _, c := range []struct {
		note  string
		begun int // step at which a process has ended that would have recorded the same as the other
	}{{"1", 0}, {"2", 0}, {"2", 5}, {"2", 7}} {
		t.Run(fmt.Sprint(c.note, c.begun), func(t *testing.T) {
			t.Parallel()
			for request := 1; ; request++ {
				name := newPolicy()
				targets := targetsOf(700, "1")
				plan, parts := planOf(t, name, targets)
				again, moreParts := planOf(t, name, targetsOf(700, c.note))
				if c.begun > 0 {
					third := newProcess(t)
					ctx, ended := third.endAt(t.Context(), c.begun)
					if _, err := third.Create(ctx, again, moreParts); err == nil || !ended() {
						t.Fatal("it has not ended")
					}
				}
				one, other, n := newProcess(t), newProcess(t), 0
				var made *v1alpha1.Plan
				one.before = func(*http.Request) (err error) {
					if n++; n == request {
						made, err = other.Create(t.Context(), again, moreParts)
					}
					return err
				}
				got, err := one.Create(t.Context(), plan, parts)
				if err != nil {
					t.Fatalf("request %d: %v", request, err)
				}
				if n < request {
					if request < 6 {
						t.Errorf("it took %d requests only", n)
					}
					return
				}
				if now := whole(t, name, targets, c.note); now.UID != made.UID || got.UID != made.UID || now.ResourceVersion != made.ResourceVersion || got.ResourceVersion != made.ResourceVersion {
					t.Fatalf("request %d: returned %+v and %+v, recorded %+v", request, got, made, now)
				}
			}
		})
	}
}

// loseFirstAnswers is a hook that loses the answer to the first of each request.
func loseFirstAnswers() func(*http.Request) error {
	seen := map[string]bool{}
	return func(r *http.Request) error {
		if id := r.Method + r.URL.String() + fmt.Sprint(r.ContentLength); !seen[id] {
			seen[id] = true
			return errCut
		}
		return nil
	}
}

// TestStore_CreateAfterLostAnswers: each request is executed, and answered at the second
// attempt only.
func TestStore_CreateAfterLostAnswers(t *testing.T) {
	t.Parallel()
	name, targets := newPolicy(), targetsOf(700, "1")
	plan, parts := planOf(t, name, targets)
	p := newProcess(t)
	p.after = loseFirstAnswers()
	if _, err := p.Create(t.Context(), plan, parts); err != nil {
		t.Fatal(err)
	}
	made := whole(t, name, targets, "1")
	p.after = nil
	before := p.requests
	again, err := p.Create(t.Context(), plan, parts)
	if err != nil || again.UID != made.UID || again.ResourceVersion != made.ResourceVersion || p.requests-before != 2 {
		t.Errorf("recording it once more took %d requests: %+v, %v", p.requests-before, again, err)
	}
}

func TestStore_CreateTakesOverOrphansOnly(t *testing.T) {
	t.Parallel()
	name, targets := newPolicy(), targetsOf(700, "1")
	plan, parts := planOf(t, name, targets)
	p := newProcess(t)
	made, err := p.Create(t.Context(), plan, parts)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody deletes the Plan; the garbage collector does not run.
	if err := p.Hub.Do(t.Context(), p.Hub.Request(http.MethodDelete, v1alpha1.Plans, plan.Name), nil); err != nil {
		t.Fatal(err)
	}
	next, err := p.Create(t.Context(), plan, parts)
	if err != nil || next.UID == made.UID {
		t.Fatalf("%+v, %v", next, err)
	}
	whole(t, name, targets, "1")
	if got, err := p.Targets(t.Context(), made); !errors.Is(err, plans.ErrIncomplete) {
		t.Errorf("the Plan that is gone has %d targets, %v", len(got), err)
	}

	// A Plan whose hash only begins alike is another one.
	other := plan.DeepCopy()
	other.Spec.Hash = plan.Spec.Hash[:63] + v1alpha1.Digest(map[bool]string{true: "1", false: "0"}[plan.Spec.Hash[63] == '0'])
	if _, err := p.Create(t.Context(), other, parts); !errors.Is(err, planstore.ErrTaken) {
		t.Errorf("%v, want ErrTaken", err)
	}
	whole(t, name, targets, "1")
}

func TestStore_PutStatus(t *testing.T) {
	t.Parallel()
	name := newPolicy()
	plan, parts := planOf(t, name, targetsOf(1, "1"))
	p := newProcess(t)
	made, err := p.Create(t.Context(), plan, parts)
	if err != nil {
		t.Fatal(err)
	}
	lost := false
	p.after = func(*http.Request) error { // of the first request
		if !lost {
			lost = true
			return errCut
		}
		return nil
	}
	approved := v1alpha1.PlanStatus{
		State: v1alpha1.PlanApproved, Since: &since, Message: "two people", Written: 1,
		Approvals: []v1alpha1.GivenApproval{{Name: "a", By: "jo", At: since, Expires: since}},
	}
	version, err := p.PutStatus(t.Context(), plan.Name, made.ResourceVersion, approved)
	if err != nil || version == made.ResourceVersion || !lost {
		t.Fatalf("version %q after %q, %v", version, made.ResourceVersion, err)
	}
	if all := p.named(t, name); len(all) != 1 || all[0].ResourceVersion != version || all[0].Status.State != v1alpha1.PlanApproved ||
		len(all[0].Status.Approvals) != 1 || all[0].Status.Required != 0 || all[0].Spec.Hash != plan.Spec.Hash {
		t.Errorf("%+v", all)
	}
	if _, err := p.PutStatus(t.Context(), plan.Name, made.ResourceVersion, plan.Status); !errors.Is(err, planstore.ErrChanged) {
		t.Errorf("the status of an older version: %v", err)
	}
	// The same with a lost answer: what is there is not what was sent.
	lost = false
	if _, err := p.PutStatus(t.Context(), plan.Name, made.ResourceVersion, plan.Status); !errors.Is(err, planstore.ErrChanged) || !lost {
		t.Errorf("the status of an older version, with a lost answer: %v", err)
	}
	if err := p.Delete(t.Context(), plan.Name, string(made.UID)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.PutStatus(t.Context(), plan.Name, version, approved); !errors.Is(err, planstore.ErrChanged) {
		t.Errorf("the status of a Plan that is gone: %v", err)
	}
}

// TestStore_ListsInPages: also where a page is answered at the second attempt.
func TestStore_ListsInPages(t *testing.T) {
	t.Parallel()
	p, want := newProcess(t), map[v1alpha1.PolicyName]bool{}
	for range 110 {
		name := newPolicy()
		plan, parts := planOf(t, name, nil)
		if _, err := p.Create(t.Context(), plan, parts); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	p.after, p.requests = loseFirstAnswers(), 0
	all, err := p.List(t.Context())
	if err != nil || p.requests < 6 {
		t.Fatalf("%d requests, %v", p.requests, err)
	}
	for i := range all {
		delete(want, all[i].Spec.Policy)
	}
	if len(want) > 0 {
		t.Errorf("%d Plans are not listed", len(want))
	}
}

// TestStore_TargetsOfOthers: what is not there, or is not what was frozen, is no target.
func TestStore_TargetsOfOthers(t *testing.T) {
	t.Parallel()
	plan, parts := planOf(t, newPolicy(), targetsOf(700, "1"))
	p := newProcess(t)
	made, err := p.Create(t.Context(), plan, parts)
	if err != nil {
		t.Fatal(err)
	}
	other := made.DeepCopy()
	other.UID = "other"
	if got, err := p.Targets(t.Context(), other); !errors.Is(err, plans.ErrIncomplete) || got != nil {
		t.Errorf("with parts of another Plan: %d targets, %v", len(got), err)
	}
	other = made.DeepCopy()
	other.Spec.Hash = digest("0")
	if got, err := p.Targets(t.Context(), other); !errors.Is(err, plans.ErrCorrupt) || got != nil {
		t.Errorf("with another hash: %d targets, %v", len(got), err)
	}
	if err := p.Hub.Do(t.Context(), p.Hub.Request(http.MethodDelete, v1alpha1.PlanParts, parts[1].Name), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Targets(t.Context(), made); !errors.Is(err, plans.ErrIncomplete) || got != nil {
		t.Errorf("without a part: %d targets, %v", len(got), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := p.Targets(ctx, made); err == nil || errors.Is(err, plans.ErrIncomplete) || got != nil {
		t.Errorf("without a hub: %d targets, %v", len(got), err)
	}
}

// TestStore_TheLargestPlan records 100,000 targets, and reads them again.
func TestStore_TheLargestPlan(t *testing.T) {
	targets := make([]plans.Target, v1alpha1.MaxPlanTargets)
	for i := range targets {
		member := i % 200
		targets[i] = plans.Target{
			MemberUID: fmt.Sprintf("0f1f4c0e-95f0-4b34-8a4c-0d8f1f%06d", member), APIVersion: "networking.k8s.io/v1",
			Ref: policy.Ref{
				Member: fmt.Sprintf("production/europe-west-3-shop-%d", member), Kind: "Ingress.networking.k8s.io",
				Namespace: "team-storefront-production", Name: fmt.Sprintf("checkout-frontend-%06d", i),
			},
			UID: fmt.Sprintf("6f1f4c0e-95f0-4b34-8a4c-0d8f1f%06d", i), Verb: v1alpha1.Patch, Remedy: v1alpha1.Digest(fmt.Sprintf("%064x", i)),
			Irreversible: strings.Repeat("i", i%2*20),
		}
	}
	p, start := newProcess(t), time.Now()
	plan, parts := planOf(t, newPolicy(), targets)
	built := time.Now()
	made, err := p.Create(t.Context(), plan, parts)
	if err != nil {
		t.Fatal(err)
	}
	created := time.Now()
	got, err := p.Targets(t.Context(), made)
	if err != nil || len(got) != len(targets) {
		t.Fatalf("%d targets, %v", len(got), err)
	}
	read := time.Now()
	if err := p.Delete(t.Context(), made.Name, string(made.UID)); err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, part := range parts {
		size += len(part.Spec.Targets)
	}
	t.Logf("%d targets in %d parts with %d bytes: built in %v, recorded in %v, read in %v, deleted in %v",
		len(got), len(parts), size, built.Sub(start), created.Sub(built), read.Sub(created), time.Since(read))
}
