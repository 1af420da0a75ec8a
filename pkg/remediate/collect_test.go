package remediate_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// putOldState sets the PolicyState of a policy, which was created some days ago.
func (f *fleet) putOldState(name string, days int, status v1alpha1.PolicyStateStatus) {
	f.putState(name, status)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := "hub/apis/federator.dev/v1alpha1/policystates/" + name
	at := time.Now().AddDate(0, 0, -days).UTC().Format(time.RFC3339)
	f.objects[key] = []byte(strings.Replace(string(f.objects[key]), `"metadata":{`, fmt.Sprintf(`"metadata":{"creationTimestamp":%q,`, at), 1))
}

func (f *fleet) stateNames() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := map[string]bool{}
	for _, s := range f.statesLocked().Items {
		names[s.Name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// TestDispatcher_DeletesStatesThatBindNobody: of policies that have not been there for a month.
// Halts, approvals, acknowledgements, what was written, what is young, and what there is stay.
func TestDispatcher_DeletesStatesThatBindNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		now, old := metav1.NowMicro(), metav1.NewMicroTime(time.Now().AddDate(0, 0, -40))
		f.putOldState("idle", 40, v1alpha1.PolicyStateStatus{
			LongestWindow: &metav1.Duration{Duration: time.Hour}, Excused: []string{"0123456789abcdef"},
			History: []v1alpha1.PolicyTransition{{Type: v1alpha1.HaltEnded, ID: "a", At: old}},
			Rollout: &v1alpha1.Rollout{Generation: "1", Wave: 1, Phase: v1alpha1.WaveDone, Since: old, Began: old},
		})
		f.putOldState("young", 29, v1alpha1.PolicyStateStatus{})
		f.putOldState("here", 40, v1alpha1.PolicyStateStatus{})
		f.putOldState("on-hub", 40, v1alpha1.PolicyStateStatus{})
		f.putOldState("written", 40, v1alpha1.PolicyStateStatus{})
		f.putOldState("halted", 40, v1alpha1.PolicyStateStatus{Halts: []v1alpha1.RecordedHalt{{ID: "a", Reason: v1alpha1.Fighting, Since: old}}})
		f.putOldState("approved", 40, v1alpha1.PolicyStateStatus{Approval: &v1alpha1.KeptApproval{}})
		f.putOldState("allowed", 40, v1alpha1.PolicyStateStatus{Allowances: []v1alpha1.Allowance{{Halt: "a", Scope: "Policy", At: old, Expires: now}}})
		f.putOldState("told", 40, v1alpha1.PolicyStateStatus{History: []v1alpha1.PolicyTransition{{Type: v1alpha1.HaltEnded, ID: "a", At: now}}})
		f.record(t, &v1alpha1.Action{ObjectMeta: meta("written-1"), Spec: v1alpha1.ActionSpec{Binding: "written"}, Status: v1alpha1.ActionStatus{Phase: v1alpha1.PhaseSucceeded, EndedAt: &now}})
		f.mu.Lock()
		f.objects["hub/apis/federator.dev/v1alpha1/fleetpolicies/on-hub"] = []byte(`{"metadata":{"name":"on-hub"}}`)
		f.mu.Unlock()
		d := run(t, f, remediate.Options{Retention: 168 * time.Hour})
		if err := d.SetIntents("here", remediate.RolloutSpec{}, remediate.Totals{}, nil, true); err != nil {
			t.Fatal(err)
		}
		all := f.stateNames()
		time.Sleep(50 * time.Minute)
		if got := f.stateNames(); got != all {
			t.Errorf("before it is known what there is: %s", got)
		}
		time.Sleep(20 * time.Minute)
		if got, want := f.stateNames(), strings.Replace(all, "idle ", "", 1); got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
	})
}

// TestDispatcher_KeepsWhatBindsWhileAStateIsDeleted: a FleetPolicy is created after the hub was
// asked whether there is one, and halts before the PolicyState is deleted, or just after. The
// halt lasts.
func TestDispatcher_KeepsWhatBindsWhileAStateIsDeleted(t *testing.T) {
	for name, recorded := range map[string]bool{"recorded before": true, "recorded after": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				f.putOldState("b", 40, v1alpha1.PolicyStateStatus{})
				var d *running
				var asked, holds atomic.Bool
				holds.Store(!recorded)
				began := make(chan struct{})
				f.onHub = func(method, path string) *metav1.Status {
					if method == http.MethodPut && strings.HasSuffix(path, "/policystates/b") && holds.Load() {
						return failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "b")
					}
					if method == http.MethodDelete && strings.HasSuffix(path, "/policystates/b") && !asked.Swap(true) {
						close(began)
						time.Sleep(2 * time.Second)
					}
					return nil
				}
				d = run(t, f, remediate.Options{Retention: 168 * time.Hour})
				<-began
				spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
				d.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
				time.Sleep(4 * time.Second)
				holds.Store(false)
				time.Sleep(2 * time.Minute)
				if s := f.state("b"); len(s.Halts) != 1 {
					t.Errorf("the hub has %+v", s)
				}
				if st, _ := d.Status("b"); st.Halted == nil {
					t.Errorf("%+v", st)
				}
				d.expect(t, "halted", "")
			})
		})
	}
}

// TestDispatcher_RecordsAgainWhatWasDeletedMeanwhile: of a policy that comes back and changes
// nothing, the hub has the state again.
func TestDispatcher_RecordsAgainWhatWasDeletedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.putOldState("b", 40, v1alpha1.PolicyStateStatus{LongestWindow: &metav1.Duration{Duration: 720 * time.Hour}})
		began := make(chan struct{})
		var asked atomic.Bool
		f.onHub = func(method, path string) *metav1.Status {
			if method == http.MethodDelete && strings.HasSuffix(path, "/policystates/b") && !asked.Swap(true) {
				close(began)
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		d := run(t, f, remediate.Options{Retention: 168 * time.Hour})
		<-began
		d.set(t, remediate.RolloutSpec{}, 20, nil)
		time.Sleep(time.Minute)
		if s := f.state("b"); s.LongestWindow == nil || s.LongestWindow.Duration != 720*time.Hour {
			t.Errorf("the hub has %+v", s)
		}
	})
}

// TestDispatcher_RecordsAgainWhatSomebodyDeleted: a policy does not wait for ever for a
// PolicyState that is not there any more.
func TestDispatcher_RecordsAgainWhatSomebodyDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Window: time.Hour}}
		d.set(t, spec, 20, intents("1", "m1 a"))
		time.Sleep(time.Second)
		d.expect(t, "the first", "m1 a@0s")
		f.mu.Lock()
		delete(f.objects, "hub/apis/federator.dev/v1alpha1/policystates/b")
		f.mu.Unlock()
		spec.Limits.Window = 2 * time.Hour // which is recorded before the next write
		d.set(t, spec, 20, intents("1", "m1 b"))
		time.Sleep(10 * time.Second)
		if got := d.written(); !strings.HasPrefix(got, "m1 b@") {
			t.Errorf("the next: %q", got)
		}
		if s := f.state("b"); s.LongestWindow == nil || s.LongestWindow.Duration != 2*time.Hour {
			t.Errorf("the hub has %+v", s)
		}
	})
}
