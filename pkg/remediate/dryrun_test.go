package remediate_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// A generation, as Plans name it.
var generations = map[string]string{"a": strings.Repeat("a", 32), "b": strings.Repeat("b", 32)}

func tries(generation string) remediate.RolloutSpec {
	return remediate.RolloutSpec{DryRun: true, Generation: generations[generation]}
}

// dryRuns describes the Plans of dry runs, the oldest first.
func (f *fleet) dryRuns() string {
	out := []string{}
	for _, p := range f.plans() {
		if p.Spec.Purpose != v1alpha1.PlanDryRun || p.Status.DryRun == nil {
			out = append(out, fmt.Sprint(p.Spec.Purpose, " ", p.Status.State))
			continue
		}
		c := p.Status.DryRun
		out = append(out, fmt.Sprintf("%s %s: %d passed, %d refused, %d invalid, %d unreachable of %d", p.Spec.Generation[:1], p.Status.State, c.Passed, c.Refused, c.Invalid, c.Unreachable, p.Spec.Targets))
	}
	return strings.Join(out, "; ")
}

func (f *fleet) expectDryRuns(t *testing.T, what, want string) {
	t.Helper()
	if got := f.dryRuns(); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestDispatcher_PlansDryRuns: a policy that only tries has one Plan with the answers, whatever
// waits for approval, and no Actions. A changed generation has another one, a changed target is
// in the next, ten minutes after the last; one that is written is none.
func TestDispatcher_PlansDryRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := tries("a")
		spec.Approval.Required = []v1alpha1.ApprovalRequirement{{Required: 2}}
		spec.Limits.Policy.Count = 1
		all := intents("1", "m1 x", "m1 y", "m2 z")
		all[1].Refused = "they contradict each other"
		d.set(t, spec, 10, all)
		time.Sleep(9 * time.Second)
		f.expectDryRuns(t, "while it is gathered", "")
		time.Sleep(3 * time.Second)
		f.expectDryRuns(t, "the first", "a Done: 2 passed, 0 refused, 1 invalid, 0 unreachable of 3")
		st, _ := d.Status("b")
		if st.DryRun == nil || st.DryRun.Targets != 3 || st.DryRun.Answers.Passed != 2 || st.DryRun.Running || st.Waiting != "" || len(st.Plans) != 0 || len(st.Halts) != 0 {
			t.Errorf("status %+v, dry run %+v", st, st.DryRun)
		}
		// The same again, in other versions, is no reason for another one.
		d.set(t, spec, 10, intents("2", "m1 x", "m1 y", "m2 z")[:1])
		d.set(t, spec, 10, append(intents("2", "m1 x", "m2 z"), all[1]))
		time.Sleep(time.Hour)
		f.expectDryRuns(t, "the same again", "a Done: 2 passed, 0 refused, 1 invalid, 0 unreachable of 3")
		// What comes just after a dry run waits.
		d.set(t, spec, 10, intents("3", "m1 x"))
		time.Sleep(time.Minute)
		f.expectDryRuns(t, "fewer", "a Superseded: 2 passed, 0 refused, 1 invalid, 0 unreachable of 3; a Done: 1 passed, 0 refused, 0 invalid, 0 unreachable of 1")
		d.set(t, spec, 10, intents("4", "m1 x", "m2 w"))
		time.Sleep(time.Minute)
		if st, _ = d.Status("b"); st.DryRun.Changed != 1 || st.DryRun.Targets != 1 {
			t.Errorf("meanwhile: %+v", st.DryRun)
		}
		time.Sleep(7 * time.Minute)
		if n := strings.Count(f.dryRuns(), ";"); n != 1 {
			t.Errorf("too early: %s", f.dryRuns())
		}
		time.Sleep(2 * time.Minute)
		if got := f.dryRuns(); !strings.HasSuffix(got, "; a Done: 2 passed, 0 refused, 0 invalid, 0 unreachable of 2") || strings.Count(got, "Done") != 1 {
			t.Errorf("then: %s", got)
		}
		next := spec
		next.Generation = generations["b"]
		d.set(t, next, 10, intents("4", "m1 x", "m2 w"))
		time.Sleep(time.Minute)
		if got := f.dryRuns(); !strings.HasSuffix(got, "; b Done: 2 passed, 0 refused, 0 invalid, 0 unreachable of 2") || strings.Count(got, "Done") != 1 {
			t.Errorf("another generation: %s", got)
		}
		d.expect(t, "until it is enforced", "")
		if n := len(f.actions()); n != 0 {
			t.Errorf("%d Actions", n)
		}
		next.DryRun, next.Approval, next.Limits = false, remediate.ApprovalTerms{}, remediate.Limits{}
		next.Generation = generations["a"]
		d.set(t, next, 10, intents("4", "m1 x", "m2 w"))
		time.Sleep(time.Minute)
		if got := f.dryRuns(); strings.Contains(got, "Done") {
			t.Errorf("enforced: %s", got)
		}
	})
}

// TestDispatcher_WritesNothingInModeDryRun: a ceiling may lower the mode, and raise it again,
// while the generation and the intents stay as they are.
func TestDispatcher_WritesNothingInModeDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := tries("a")
		spec.DryRun = false
		set := func(dryRun bool) {
			spec.DryRun = dryRun
			if err := d.UpdateIntents("b", spec, remediate.Totals{Fleet: 10}, nil, nil, true); err != nil {
				t.Error(err)
			}
		}
		f.onDryRun = func(string) { set(true) } // between the plan and the write
		d.set(t, spec, 10, intents("1", "m1 x"))
		time.Sleep(time.Minute)
		f.onDryRun = nil
		d.expect(t, "lowered", "")
		f.expectDryRuns(t, "lowered", "a Done: 1 passed, 0 refused, 0 invalid, 0 unreachable of 1")
		set(false)
		d.expect(t, "raised", "m1 x@1m0s")
		f.expectDryRuns(t, "raised", "a Superseded: 1 passed, 0 refused, 0 invalid, 0 unreachable of 1")
	})
}

// TestDispatcher_KeepsDryRunsOverFailovers: a dry run that has ended is not repeated by the next
// leader; one under way starts again, and leaves nothing.
func TestDispatcher_KeepsDryRunsOverFailovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var asked atomic.Int64
		f.onDryRun = func(string) { asked.Add(1) }
		var leader atomic.Int64
		leader.Store(1)
		lease := func(n int64) func() (time.Time, error) {
			return leaseOf(func() error {
				if leader.Load() != n {
					return errors.New("another process is the leader")
				}
				return nil
			})
		}
		var targets []string
		for n := range 100 {
			targets = append(targets, fmt.Sprintf("m1 x%02d", n))
		}
		first, second := run(t, f, remediate.Options{Lease: lease(1)}), run(t, f, remediate.Options{Lease: lease(2)})
		first.set(t, tries("a"), 100, intents("1", targets...))
		second.set(t, tries("a"), 100, intents("1", targets...))
		time.Sleep(12 * time.Second)
		if st, _ := first.Status("b"); !st.DryRun.Running || st.DryRun.Remaining < 30 || st.DryRun.Remaining > 90 {
			t.Fatalf("not under way: %+v", st.DryRun)
		}
		leader.Store(2)
		time.Sleep(10 * time.Second)
		f.expectDryRuns(t, "taken over", "")
		if st, _ := first.Status("b"); st.DryRun.Running {
			t.Error("the earlier leader goes on asking")
		}
		time.Sleep(time.Minute)
		f.expectDryRuns(t, "by the second", "a Done: 100 passed, 0 refused, 0 invalid, 0 unreachable of 100")
		leader.Store(1)
		before := asked.Load()
		time.Sleep(time.Hour)
		if n := asked.Load(); n != before {
			t.Errorf("asked %d times again", n-before)
		}
		if st, _ := first.Status("b"); st.DryRun.Targets != 100 || st.DryRun.Answers.Passed != 100 {
			t.Errorf("the first, again: %+v", st.DryRun)
		}
		// A process that starts knows the Plan before it knows the policy.
		leader.Store(3)
		third := run(t, f, remediate.Options{Lease: lease(3)})
		time.Sleep(time.Minute)
		third.set(t, tries("a"), 100, intents("2", targets...))
		time.Sleep(time.Hour)
		if n := asked.Load(); n != before {
			t.Errorf("asked %d times by a process that started", n-before)
		}
		f.expectDryRuns(t, "by the third", "a Done: 100 passed, 0 refused, 0 invalid, 0 unreachable of 100")
	})
}

// TestDispatcher_AsksAtBoundedRates: also while one member hangs, which delays nobody else and
// is asked again once it may answer; what is held or stopped is not asked.
func TestDispatcher_AsksAtBoundedRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var hung atomic.Bool
		hung.Store(true)
		var times []time.Time
		f.onDryRun = func(target string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if strings.HasPrefix(target, "m1") {
				times = append(times, time.Now())
			}
			if strings.HasPrefix(target, "m3") || strings.HasPrefix(target, "m4") {
				t.Errorf("asked %s", target)
			}
		}
		f.hangs = func(member string) bool { return member == "m2" && hung.Load() }
		away := func(member string) error {
			if member == "m2" && hung.Load() {
				return errors.New("it does not answer")
			}
			return nil
		}
		var held atomic.Bool
		held.Store(true)
		d := run(t, f, remediate.Options{DryRuns: remediate.DryRunRates{PerSecond: 100, MemberPerSecond: 10}, MemberAway: away, Held: func(member string) error {
			if member == "m3" && held.Load() {
				return errors.New("it is paused")
			}
			return nil
		}})
		var targets []string
		for n := range 50 {
			targets = append(targets, fmt.Sprintf("m1 x%02d", n), fmt.Sprintf("m2 x%02d", n))
		}
		d.SetStops(remediate.Stops{Members: map[string]string{"m4": "by jane"}})
		d.set(t, tries("a"), 100, intents("1", append(targets, "m3 x", "m4 x")...))
		time.Sleep(70 * time.Second)
		f.expectDryRuns(t, "with one that hangs", "a Done: 50 passed, 0 refused, 0 invalid, 52 unreachable of 102")
		if took := times[len(times)-1].Sub(times[0]); took < 4800*time.Millisecond || took > 6*time.Second {
			t.Errorf("50 targets at 10 a second took %v", took)
		}
		time.Sleep(2 * time.Hour)
		if n := len(times); n != 50 {
			t.Errorf("asked %d times while it is away", n)
		}
		hung.Store(false)
		time.Sleep(10 * time.Minute)
		f.expectDryRuns(t, "once it answers", "a Done: 100 passed, 0 refused, 0 invalid, 2 unreachable of 102")
	})
}

// TestDispatcher_RefusesDryRunsOfTooMany: of more targets than a Plan may have, visibly.
func TestDispatcher_RefusesDryRunsOfTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		all := make([]remediate.Intent, v1alpha1.MaxPlanTargets+1)
		for n := range all {
			all[n] = remediate.Intent{Binding: "b", MemberUID: "uid", UID: "u", ResourceVersion: "1", Remedy: policy.Remedy{
				Action: "delete", Target: policy.Ref{Member: "m1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("x", n)},
			}}
		}
		if err := d.SetIntents("b", tries("a"), remediate.Totals{}, all, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "no dry run is made of 100001 targets") || st.DryRun.Running {
			t.Errorf("waiting %q, %+v", st.Waiting, st.DryRun)
		}
		f.expectDryRuns(t, "too many", "")
	})
}

// TestDispatcher_RecordsDryRunsLater: a hub that refuses to record has nobody asked again, and a
// policy that has changed meanwhile records nothing.
func TestDispatcher_RecordsDryRunsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var refuses atomic.Bool
		refuses.Store(true)
		f.onHub = func(method, path string) *metav1.Status {
			if refuses.Load() && method == http.MethodPost && strings.HasSuffix(path, "/plans") {
				return forbidden()
			}
			return nil
		}
		var asked atomic.Int64
		f.onDryRun = func(string) { asked.Add(1) }
		d := run(t, f, remediate.Options{})
		d.set(t, tries("a"), 10, intents("1", "m1 x"))
		time.Sleep(5 * time.Minute)
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "cannot be recorded") || asked.Load() != 1 {
			t.Errorf("waiting %q, asked %d times", st.Waiting, asked.Load())
		}
		d.set(t, tries("b"), 10, intents("1", "m1 x", "m2 x"))
		time.Sleep(time.Second)
		refuses.Store(false)
		time.Sleep(time.Minute)
		f.expectDryRuns(t, "changed meanwhile", "b Done: 2 passed, 0 refused, 0 invalid, 0 unreachable of 2")
		if st, _ := d.Status("b"); st.Waiting != "" || st.DryRun.Targets != 2 {
			t.Errorf("waiting %q, %+v", st.Waiting, st.DryRun)
		}
	})
}

// TestDispatcher_KeepsFewDryRuns: what changes all the time has a dry run each ten minutes, which
// must not fill the hub until the retention ends.
func TestDispatcher_KeepsFewDryRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{Retention: 168 * time.Hour})
		most, made := 0, map[string]bool{}
		for n := range 24 * 6 {
			d.set(t, tries("a"), 10, intents("1", "m1 x", fmt.Sprint("m2 y", n)))
			time.Sleep(10 * time.Minute)
			for _, p := range f.plans() {
				made[p.Name] = true
			}
			most = max(most, len(f.plans()))
		}
		if len(made) < 100 {
			t.Fatalf("only %d dry runs within a day", len(made))
		}
		if most > 14 || !strings.Contains(f.dryRuns(), "Done") {
			t.Errorf("up to %d Plans at once: %s", most, f.dryRuns())
		}
	})
}
