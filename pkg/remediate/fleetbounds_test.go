package remediate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// many are targets of so many members, so many each.
func many(members, each int) []string {
	var out []string
	for m := range members {
		for n := range each {
			out = append(out, fmt.Sprintf("m%d t%d", m, n))
		}
	}
	return out
}

// TestDispatcher_WritesOfAllPoliciesAreWithinARate: whatever the number of policies and
// members.
func TestDispatcher_WritesOfAllPoliciesAreWithinARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var mu sync.Mutex
		var sent []time.Time
		f.delay = 10 * time.Second // that answers come late makes no burst
		f.onWrite = func(string) *metav1.Status {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Now())
			return nil
		}
		d := run(t, f, remediate.Options{MemberConcurrency: 30, Bounds: remediate.Bounds{WritesPerSecond: 2}})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", many(5, 6)...))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(sent) != 30 {
			t.Errorf("%d writes, want 30", len(sent))
		}
		for i := range sent {
			for j := i; j < len(sent); j++ {
				if n, span := float64(j-i+1), sent[j].Sub(sent[i]).Seconds(); n > 2+2*span+1e-3 {
					t.Fatalf("%v writes within %vs", n, span)
				}
			}
		}
		if took := sent[len(sent)-1].Sub(sent[0]); took > 30*time.Second {
			t.Errorf("30 writes took %v", took)
		}
	})
}

// TestDispatcher_WritesToSoManyMembersAtOnce: the others wait until one of them is done.
func TestDispatcher_WritesToSoManyMembersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var mu sync.Mutex
		under, most := map[string]int{}, 0
		f.onRequest = func(context.Context) error { time.Sleep(time.Second); return nil }
		f.onWrite = func(target string) *metav1.Status {
			member, _, _ := strings.Cut(target, " ")
			mu.Lock()
			under[member]++
			most = max(most, len(under))
			mu.Unlock()
			time.AfterFunc(time.Second-time.Millisecond, func() { // before its answer
				mu.Lock()
				defer mu.Unlock()
				if under[member]--; under[member] == 0 {
					delete(under, member)
				}
			})
			return nil
		}
		d := run(t, f, remediate.Options{Bounds: remediate.Bounds{Members: 2}})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", many(5, 3)...))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := strings.Count(d.written(), "@"); n != 15 || most != 2 {
			t.Errorf("%d writes, to %d members at once", n, most)
		}
	})
}

// TestDispatcher_HoldsWhileTooManyMembersAreAway: also between plan and write.
func TestDispatcher_HoldsWhileTooManyMembersAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var mu sync.Mutex
		away := 0
		set := func(n int) { mu.Lock(); defer mu.Unlock(); away = n }
		f.onDryRun = func(string) { set(3) }
		d := run(t, f, remediate.Options{Bounds: remediate.Bounds{MaxAway: 20}, Away: func() (int, int) { mu.Lock(); defer mu.Unlock(); return away, 10 }})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "3 of 10 are away since the dry run", "")
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "3 of 10 members are away") {
			t.Errorf("waiting: %q", st.Waiting)
		}
		f.onDryRun = func(string) {}
		set(2)
		time.Sleep(2 * time.Second)
		d.expect(t, "2 of 10 are", "m1 a@1m1s")
	})
}

// TestDispatcher_CountsNoMembersWithoutABound: to count them takes time, and each write would.
func TestDispatcher_CountsNoMembersWithoutABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted atomic.Int64
		d := run(t, newFleet(), remediate.Options{Away: func() (int, int) { counted.Add(1); return 10, 10 }})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		d.expect(t, "all are away, and there is no bound", "m1 a@0s")
		if n := counted.Load(); n != 0 {
			t.Errorf("members were counted %d times", n)
		}
	})
}

// TestDispatcher_StopsEverythingBeyondABoundOfFailures: at once, and until a person resumes,
// whether or not the stop can be recorded.
func TestDispatcher_StopsEverythingBeyondABoundOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var mu sync.Mutex
		requests := 0
		f.onWrite = func(string) *metav1.Status {
			mu.Lock()
			defer mu.Unlock()
			requests++
			return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: "no"}
		}
		var d *running
		recorded, hubAway := "", true
		d = run(t, f, remediate.Options{
			MemberConcurrency: 1, Bounds: remediate.Bounds{Members: 1, Failures: 3, FailureWindow: time.Hour},
			StopAll: func(_ context.Context, reason string) error {
				mu.Lock()
				defer mu.Unlock()
				if hubAway {
					return errors.New("the hub is away")
				}
				recorded = reason
				d.SetStops(remediate.Stops{All: "by federator: " + reason})
				return nil
			},
		})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", many(2, 10)...))
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		if requests != 4 || recorded != "" {
			t.Errorf("%d requests, recorded %q", requests, recorded)
		}
		hubAway = false
		mu.Unlock()
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "4 corrections failed within 1h0m0s, more than 3") {
			t.Errorf("waiting: %q", st.Waiting)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(recorded, "4 corrections failed") || !strings.Contains(d.Stopped(), recorded) || requests != 4 {
			t.Errorf("recorded %q, stopped %q, %d requests", recorded, d.Stopped(), requests)
		}
		// What is counted starts from nothing once a person has resumed.
		f.onWrite = func(string) *metav1.Status { return nil }
		d.SetStops(remediate.Stops{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if st, _ := d.Status("b"); st.Phases[v1alpha1.PhaseSucceeded] != 16 {
			t.Errorf("after the stop: %+v", st.Phases)
		}
	})
}

// TestDispatcher_TakesOverOwnFieldsWithOneRequest: the dry run shows that a write has to, and a
// rate of one request lets no second one pass.
func TestDispatcher_TakesOverOwnFieldsWithOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.ownConflicts = true
		d := run(t, f, remediate.Options{Bounds: remediate.Bounds{WritesPerSecond: 1}})
		one := intents("1", "m1 a")
		one[0].Remedy.Action, one[0].Remedy.Patch = "apply", nil
		one[0].Remedy.Object = []byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"b"}}`)
		d.set(t, remediate.RolloutSpec{}, 20, one)
		time.Sleep(time.Minute)
		d.expect(t, "taken over", "m1 a@0s")
		if f.conflicts != 1 {
			t.Errorf("%d requests were refused, want that of the dry run only", f.conflicts)
		}
	})
}
