package remediate_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_TakesOverWheneverItLeads: another process may have led in between, while
// this one had nothing to do.
func TestDispatcher_TakesOverWheneverItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var follows atomic.Bool
		d := run(t, newFleet(), remediate.Options{Lease: leaseOf(func() error {
			if follows.Load() {
				return errors.New("another process is the leader")
			}
			return nil
		})})
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Minute)
			if got := d.listed(); got != n {
				t.Errorf("taken over %d times, want %d", got, n)
			}
			follows.Store(true)
			time.Sleep(2 * time.Second)
			follows.Store(false)
		}
	})
}

// TestDispatcher_KnowsNothingOfAfterALeaseThatLapsed: a process that stood still while its lease
// ended, and has a new one when it goes on, was never refused the lead. What others have written
// in between counts.
func TestDispatcher_KnowsNothingOfAfterALeaseThatLapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		ends := time.Now().Add(time.Minute)
		first := run(t, f, remediate.Options{Lease: func() (time.Time, error) {
			if time.Now().Before(ends) {
				return ends, nil
			}
			return time.Now().Add(time.Hour), nil
		}})
		other, lead := replica(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Window: 24 * time.Hour, Policy: remediate.Limit{Count: 2}}}
		synctest.Wait()
		first.set(t, spec, 10, intents("1", "m1 a"))
		time.Sleep(2 * time.Second)
		first.expect(t, "the first", "m1 a@0s")
		lead(true)
		time.Sleep(2 * time.Second)
		other.set(t, spec, 10, intents("1", "m1 b"))
		time.Sleep(2 * time.Second)
		other.expect(t, "another process", "m1 b@4s")
		lead(false)

		time.Sleep(2 * time.Minute) // the first one has another lease
		first.set(t, spec, 10, intents("1", "m1 c"))
		time.Sleep(2 * time.Second)
		first.expect(t, "with two written already", "")
		if h := first.halt(t); h.Reason != v1alpha1.OverLimit {
			t.Errorf("halted for %s, want %s", h.Reason, v1alpha1.OverLimit)
		}
	})
}

// TestDispatcher_SlowMemberDelaysNoOther: the actions that are in doubt there are resolved
// later.
func TestDispatcher_SlowMemberDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.delay = 4 * time.Second // below the time-out of one inspection, above what all may take
		for n := range 6 {
			f.record(t, &v1alpha1.Action{
				ObjectMeta: meta(fmt.Sprint(n)),
				Spec: v1alpha1.ActionSpec{
					Binding: "b", Verb: v1alpha1.Patch, Patch: `{"data":{"a":"b"}}`,
					Target: v1alpha1.Target{Member: "m1", APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(n), UID: "u", ResourceVersion: "1"},
				},
			})
		}
		inDoubt := func() (n int) {
			for _, a := range f.actions() {
				if !a.Ended() {
					n++
				}
			}
			return n
		}
		d := run(t, f, remediate.Options{})
		d.set(t, remediate.RolloutSpec{Suspend: true}, 10, intents("1", "m2 a"))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if st, _ := d.Status("b"); st.Waiting != "suspended" || inDoubt() == 0 || inDoubt() == 6 {
			t.Errorf("waiting: %q, while %d are in doubt", st.Waiting, inDoubt())
		}
		time.Sleep(2 * time.Minute)
		if n := inDoubt(); n != 0 {
			t.Errorf("%d are in doubt", n)
		}
	})
}

// TestDispatcher_LeaderDeletesOldActions: at once when it comes to lead, and every hour.
func TestDispatcher_LeaderDeletesOldActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		ended := func(name string, ago time.Duration) {
			at := metav1.NewMicroTime(time.Now().Add(-ago))
			f.record(t, &v1alpha1.Action{ObjectMeta: meta(name), Status: v1alpha1.ActionStatus{Phase: v1alpha1.PhaseFailed, EndedAt: &at}})
		}
		names := func() (out []string) {
			for _, a := range f.actions() {
				out = append(out, a.Name)
			}
			return out
		}
		ended("old", 3*time.Hour)
		ended("older", 4*time.Hour)
		ended("young", 90*time.Minute)
		var leads atomic.Bool
		run(t, f, remediate.Options{Retention: 2 * time.Hour, Keep: 1, Lease: leaseOf(func() error {
			if !leads.Load() {
				return errors.New("another process is the leader")
			}
			return nil
		})})
		time.Sleep(2 * time.Hour)
		if got := names(); len(got) != 3 {
			t.Errorf("a follower has deleted all but %q", got)
		}
		ended("new", 0)
		leads.Store(true)
		time.Sleep(2 * time.Second)
		if got := names(); !slices.Equal(got, []string{"new"}) {
			t.Errorf("the leader has kept %q", got)
		}
		ended("newest", 0)
		time.Sleep(2*time.Hour + time.Minute)
		if got := names(); !slices.Equal(got, []string{"newest"}) {
			t.Errorf("hours later it has kept %q", got)
		}
	})
}

// TestDispatcher_CountsWhatATakeoverHasNotSeen: an Action may reach the hub after a takeover
// by the same process has listed them. What it writes is of its wave all the same.
func TestDispatcher_CountsWhatATakeoverHasNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var late atomic.Bool
		late.Store(true)
		f.onHub = func(method, path string) *metav1.Status {
			if method == "POST" && strings.HasSuffix(path, "/actions") && late.Swap(false) {
				time.Sleep(6 * time.Second)
			}
			return nil
		}
		d, lead := replica(t, f, remediate.Options{})
		lead(true)
		time.Sleep(2 * time.Second)
		d.set(t, twoWaves("1", time.Minute), 10, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Second)
		failover(lead, lead)
		time.Sleep(2 * time.Second)
		d.expect(t, "the canary", "m1 a@8s")
		if st, _ := d.Status("b"); st.Phases[v1alpha1.PhaseSucceeded] != 1 {
			t.Errorf("%v have ended, want the one that was written", st.Phases)
		}
		time.Sleep(50 * time.Second)
		d.expect(t, "while the canary soaks", "")
	})
}

// TestDispatcher_ReportsWhatATakeoverFoundUnderWayAsItWas: an Action that writes nothing may be under
// way in the process that takes over from itself. Its outcome is the one that it had.
func TestDispatcher_ReportsWhatATakeoverFoundUnderWayAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var late atomic.Bool
		late.Store(true)
		f.onHub = func(method, path string) *metav1.Status {
			if method == "PATCH" && strings.HasSuffix(path, "/status") && strings.Contains(path, "/actions/") && late.Swap(false) {
				time.Sleep(6 * time.Second)
			}
			return nil
		}
		var mu sync.Mutex
		var told []string
		d, lead := replica(t, f, remediate.Options{
			Owner: func(policy.Ref) remediate.Ownership { return remediate.Ownership{Owner: "Application shop"} },
			Corrected: func(a *remediate.Action) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, string(a.Phase))
			},
		})
		lead(true)
		time.Sleep(2 * time.Second)
		d.set(t, remediate.RolloutSpec{}, 10, intents("1", "m1 a"))
		time.Sleep(time.Second)
		failover(lead, lead)
		time.Sleep(30 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		other := func(phase string) bool { return phase != string(v1alpha1.PhaseManaged) }
		if len(told) == 0 || slices.ContainsFunc(told, other) {
			t.Errorf("reported %v, want %s only", told, v1alpha1.PhaseManaged)
		}
	})
}
