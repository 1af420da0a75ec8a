package planstore_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// TestStore_DeleteAtEachStep: a process ends while it deletes a Plan; the Plan is there as long
// as one of its parts is, and another process deletes both.
func TestStore_DeleteAtEachStep(t *testing.T) {
	t.Parallel()
	for step := 1; ; step++ {
		name := newPolicy()
		plan, parts := planOf(t, name, targetsOf(700, "1"))
		p := newProcess(t)
		made, err := p.Create(t.Context(), plan, parts)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Delete(t.Context(), plan.Name, "another"); err != nil {
			t.Fatal(err)
		}
		whole(t, name, targetsOf(700, "1"), "1")
		first := newProcess(t)
		ctx, ended := first.endAt(t.Context(), step)
		if err := first.Delete(ctx, plan.Name, string(made.UID)); ended() != (err != nil) {
			t.Fatalf("step %d: %v", step, err)
		}
		left := p.parts(t, plan.Name)
		if n := len(p.named(t, name)); n == 0 && left > 0 {
			t.Fatalf("step %d: %d parts are left of a Plan that is gone", step, left)
		}
		if err := p.Delete(t.Context(), plan.Name, string(made.UID)); err != nil {
			t.Fatal(err)
		}
		if n, left := len(p.named(t, name)), p.parts(t, plan.Name); n != 0 || left != 0 {
			t.Fatalf("step %d: %d Plans and %d parts are left", step, n, left)
		}
		if !ended() {
			if step < 8 {
				t.Errorf("it took %d steps only", step)
			}
			return
		}
	}
}

// TestStore_DiscardLeavesWhatIsCompleted: a Plan that was being frozen when it was read, and waits
// now, keeps all its parts; one that is still as it was read goes with them.
func TestStore_DiscardLeavesWhatIsCompleted(t *testing.T) {
	t.Parallel()
	p, first, name := newProcess(t), newProcess(t), newPolicy()
	plan, parts := planOf(t, name, targetsOf(700, "1"))
	ctx, ended := first.endAt(t.Context(), 6) // after the Plan and its state are recorded, before its last part is
	if _, err := first.Create(ctx, plan, parts); err == nil || !ended() {
		t.Fatalf("Create returned %v", err)
	}
	seen := p.named(t, name)[0]
	if seen.Status.State != v1alpha1.PlanFreezing {
		t.Fatalf("the Plan is %q", seen.Status.State)
	}
	if _, err := p.Create(t.Context(), plan, parts); err != nil {
		t.Fatal(err)
	}
	if gone, err := p.Discard(t.Context(), &seen); gone || err != nil {
		t.Fatalf("Discard returned %t, %v", gone, err)
	}
	whole(t, name, targetsOf(700, "1"), "1")
	if gone, err := p.Discard(t.Context(), &p.named(t, name)[0]); !gone || err != nil {
		t.Fatalf("Discard returned %t, %v", gone, err)
	}
	if n, left := len(p.named(t, name)), p.parts(t, plan.Name); n != 0 || left != 0 {
		t.Errorf("%d Plans and %d parts are left", n, left)
	}
}

// parts is how many parts of a Plan there are.
func (p *process) parts(t *testing.T, plan string) int {
	t.Helper()
	list := &v1alpha1.PlanPartList{}
	if err := p.Hub.Do(t.Context(), p.Hub.Request(http.MethodGet, v1alpha1.PlanParts).Param("fieldSelector", "spec.plan="+plan), list); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// inState records a Plan with 700 targets, in two parts, that entered a state at a time.
func (p *process) inState(t *testing.T, name v1alpha1.PolicyName, state v1alpha1.PlanState, at time.Time) *v1alpha1.Plan {
	t.Helper()
	plan, parts := planOf(t, name, targetsOf(700, "1"))
	made, err := p.Create(t.Context(), plan, parts)
	if err != nil {
		t.Fatal(err)
	}
	entered := metav1.NewTime(at)
	if made.ResourceVersion, err = p.PutStatus(t.Context(), made.Name, made.ResourceVersion, v1alpha1.PlanStatus{State: state, Since: &entered, Written: 7}); err != nil {
		t.Fatal(err)
	}
	return made
}

// TestStore_RecreateReplacesWhatIsOver: a Plan that is over is recorded as a new one, and one
// that is not stays, with what it has been approved and has written.
func TestStore_RecreateReplacesWhatIsOver(t *testing.T) {
	t.Parallel()
	for state, over := range map[v1alpha1.PlanState]bool{
		v1alpha1.PlanWaiting: false, v1alpha1.PlanApproved: false, v1alpha1.PlanDone: true, v1alpha1.PlanSuperseded: true, v1alpha1.PlanExpired: true,
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			p, name := newProcess(t), newPolicy()
			before := p.inState(t, name, state, since.Time)
			again, parts := planOf(t, name, targetsOf(700, "2"))
			if kept, err := p.Create(t.Context(), again, parts); err != nil || kept.UID != before.UID || kept.Status.State != state {
				t.Fatalf("Create returned %+v, %v", kept, err)
			}
			p.after = loseFirstAnswers()
			made, err := p.Recreate(t.Context(), again, parts)
			if err != nil {
				t.Fatal(err)
			}
			if !over {
				if made.UID != before.UID || made.ResourceVersion != before.ResourceVersion || made.Status.State != state || made.Status.Written != 7 {
					t.Fatalf("Recreate returned %+v", made)
				}
				return
			}
			if now := whole(t, name, targetsOf(700, "1"), "2"); now.UID == before.UID || now.UID != made.UID || now.Status.Written != 0 {
				t.Fatalf("Recreate returned %+v, and recorded %+v", made, now)
			}
			if kept, err := p.Recreate(t.Context(), again, parts); err != nil || kept.UID != made.UID {
				t.Errorf("Recreate once more returned %+v, %v", kept, err)
			}
			if n := newProcess(t).parts(t, made.Name); n != 2 {
				t.Errorf("%d parts", n)
			}
		})
	}
}

// TestStore_RecreateAtEachStep: a process ends while it replaces a Plan that is over; another
// one completes it.
func TestStore_RecreateAtEachStep(t *testing.T) {
	t.Parallel()
	for step := 1; ; step++ {
		p, name := newProcess(t), newPolicy()
		before := p.inState(t, name, v1alpha1.PlanSuperseded, since.Time)
		again, parts := planOf(t, name, targetsOf(700, "2"))
		first := newProcess(t)
		ctx, ended := first.endAt(t.Context(), step)
		if _, err := first.Recreate(ctx, again, parts); ended() != (err != nil) {
			t.Fatalf("step %d: %v", step, err)
		}
		made, err := p.Recreate(t.Context(), again, parts)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if now := whole(t, name, targetsOf(700, "1"), "2"); now.UID == before.UID || now.UID != made.UID {
			t.Fatalf("step %d: returned %+v, recorded %+v", step, made, now)
		}
		if !ended() {
			if step < 14 {
				t.Errorf("it took %d steps only", step)
			}
			return
		}
	}
}

// TestStore_Purge: what was over before a time is deleted, oldest first and so many objects at a
// time; what is in use, or not over, or was not over before, stays.
func TestStore_Purge(t *testing.T) {
	t.Parallel()
	p, limit := newProcess(t), since.Add(time.Hour)
	mine := map[string]string{}
	add := func(what string, state v1alpha1.PlanState, at time.Time) {
		mine[p.inState(t, newPolicy(), state, at).Name] = what
	}
	add("second", v1alpha1.PlanDone, since.Add(-time.Minute))
	add("first", v1alpha1.PlanExpired, since.Add(-time.Hour))
	add("third", v1alpha1.PlanSuperseded, since.Time)
	add("recent", v1alpha1.PlanDone, limit)
	add("waiting", v1alpha1.PlanWaiting, since.Time)
	add("approved", v1alpha1.PlanApproved, since.Time)
	add("in use", v1alpha1.PlanDone, since.Time)
	inUse := func(plan *v1alpha1.Plan) bool { // those of other tests are, too
		what, ok := mine[plan.Name]
		return !ok || what == "in use"
	}
	purge := func(limitObjects, deleted, left int) {
		t.Helper()
		if d, l, err := p.Purge(t.Context(), limit, limitObjects, inUse); d != deleted || l != left || err != nil {
			t.Fatalf("%d are deleted and %d left, want %d and %d: %v", d, l, deleted, left, err)
		}
	}
	remains := func(gone ...string) {
		t.Helper()
		all, err := p.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for i := range all {
			there[mine[all[i].Name]] = true
		}
		for name, what := range mine {
			parts := p.parts(t, name)
			if want := !slices.Contains(gone, what); there[what] != want || (parts == 2) != want || (parts == 0) == want {
				t.Errorf("%s: there: %t, with %d parts", what, there[what], parts)
			}
		}
	}
	purge(1, 1, 2)
	remains("first")
	purge(5, 1, 1)
	remains("first", "second")
	purge(5, 1, 0)
	purge(5, 0, 0)
	remains("first", "second", "third")
}

// TestStore_PurgeOfWhatIsBeingFrozen: what nobody completes is deleted, but not what somebody
// completes meanwhile.
func TestStore_PurgeOfWhatIsBeingFrozen(t *testing.T) {
	t.Parallel()
	for _, completed := range []bool{false, true} {
		p, name := newProcess(t), newPolicy()
		plan, parts := planOf(t, name, targetsOf(700, "1"))
		first := newProcess(t)
		ctx, ended := first.endAt(t.Context(), 7)
		if _, err := first.Create(ctx, plan, parts); err == nil || !ended() || p.parts(t, plan.Name) == 0 {
			t.Fatalf("%v, with %d parts", err, p.parts(t, plan.Name))
		}
		want := 1
		if completed {
			want = 0
			p.before = func(r *http.Request) error {
				if r.Method != http.MethodDelete {
					return nil
				}
				_, err := newProcess(t).Create(t.Context(), plan, parts)
				return err
			}
		}
		other := func(p *v1alpha1.Plan) bool { return p.Spec.Policy != name }
		if n, left, err := p.Purge(t.Context(), time.Now().Add(-time.Hour), 100, other); n != 0 || left != 0 || err != nil {
			t.Fatalf("%d of what is recent are deleted, %d left: %v", n, left, err)
		}
		if n, left, err := p.Purge(t.Context(), time.Now().Add(time.Hour), 100, other); n != want || left != 0 || err != nil {
			t.Fatalf("%d are deleted, %d left: %v", n, left, err)
		}
		if completed {
			whole(t, name, targetsOf(700, "1"), "1")
		} else if n := p.parts(t, plan.Name); n != 0 || len(p.named(t, name)) != 0 {
			t.Errorf("it is left with %d parts", n)
		}
	}
}
