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

// TestDispatcher_RollbacksAreWithinTheBounds: members at once, writes of a member at once, and
// requests a second; and they do not wait for corrections that come all the time.
func TestDispatcher_RollbacksAreWithinTheBounds(t *testing.T) {
	for name, opts := range map[string]remediate.Options{
		"members":     {Bounds: remediate.Bounds{Members: 1}},
		"of a member": {MemberConcurrency: 1},
		"rate":        {Bounds: remediate.Bounds{WritesPerSecond: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				d := run(t, f, opts)
				d.set(t, remediate.RolloutSpec{}, 100, intents("1", many(4, 3)...))
				time.Sleep(time.Minute)
				d.written()
				made := f.actions()
				var mu sync.Mutex
				var sent []time.Time
				under, members, perMember, dryRuns := map[string]int{}, 0, 0, 0
				f.onDryRun = func(string) {
					mu.Lock()
					defer mu.Unlock()
					dryRuns++
				}
				f.onWrite = func(target string) *metav1.Status {
					member, _, _ := strings.Cut(target, " ")
					mu.Lock()
					under[member]++
					members, perMember, sent = max(members, len(under)), max(perMember, under[member]), append(sent, time.Now())
					mu.Unlock()
					time.Sleep(300 * time.Millisecond)
					mu.Lock()
					if under[member]--; under[member] == 0 {
						delete(under, member)
					}
					mu.Unlock()
					return nil
				}
				// As many corrections as there can be come, too.
				var others []string
				for _, target := range many(4, 200) {
					others = append(others, strings.Replace(target, " t", " other", 1))
				}
				d.set(t, remediate.RolloutSpec{}, 100, intents("1", others...))
				synctest.Wait()
				var backs sync.WaitGroup
				for _, a := range made {
					backs.Go(func() {
						if back, err := d.RollBack(t.Context(), a.Name, remediate.RollbackRequest{Reason: "a test"}); err != nil || back.Phase != v1alpha1.PhaseSucceeded {
							t.Errorf("%+v, %v", back, err)
						}
					})
				}
				began := time.Now()
				backs.Wait()
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("%d rollbacks took %v", len(made), took)
				}
				mu.Lock()
				defer mu.Unlock()
				if n := opts.Bounds.Members; n > 0 && members > n {
					t.Errorf("%d members at once", members)
				}
				if n := opts.MemberConcurrency; n > 0 && perMember > n {
					t.Errorf("%d writes of a member at once", perMember)
				}
				if opts.Bounds.WritesPerSecond > 0 && (len(sent) > 1+int(time.Since(began).Seconds())+1 || dryRuns > len(sent)+2) {
					t.Errorf("%d writes, %d dry runs in %v", len(sent), dryRuns, time.Since(began))
				}
			})
		})
	}
}

// TestDispatcher_RollbacksOfAMemberThatHangs: they wait for its corrections to end, and delay
// those of no other member.
func TestDispatcher_RollbacksOfAMemberThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{MemberConcurrency: 1})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", "m1 a"))
		time.Sleep(time.Second)
		d.expect(t, "the first", "m1 a@0s")
		name := f.actions()[0].Name
		var hangs atomic.Bool
		hangs.Store(true)
		f.hangs = func(member string) bool { return member == "m1" && hangs.Load() }
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", "m1 b"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		back := make(chan error)
		go func() {
			_, err := d.RollBack(ctx, name, remediate.RollbackRequest{Reason: "a test"})
			back <- err
		}()
		synctest.Wait()
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", "m1 b", "m2 c"))
		time.Sleep(time.Second)
		d.expect(t, "while it hangs", "m2 c@1s")
		if err := <-back; !errors.Is(err, remediate.ErrNotNow) {
			t.Errorf("the rollback: %v", err)
		}
		hangs.Store(false)
		time.Sleep(5 * time.Minute)
		if got := d.written(); !strings.Contains(got, "m1 b@") {
			t.Errorf("after it: %q", got)
		}
	})
}
