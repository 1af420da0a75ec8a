package remediate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_WritesNothingWithoutRoomForItsRecord: the hub never has more Actions than it
// may, under any leader; the status says why corrections wait, and they go on once enough old
// Actions have been deleted. Rollbacks do not wait.
func TestDispatcher_WritesNothingWithoutRoomForItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.onWrite = func(target string) *metav1.Status {
			if strings.HasPrefix(target, "m1 old") {
				return forbidden()
			}
			return nil
		}
		registry := prometheus.NewPedanticRegistry()
		opts := remediate.Options{MaxActions: 20, Retention: time.Hour, RetryAfter: 100 * time.Hour}
		first := opts
		first.Metrics = registry
		d := run(t, f, first)
		spec := remediate.RolloutSpec{}
		var old, targets []string
		for n := range 10 {
			old = append(old, fmt.Sprintf("m1 old%d", n)) // which fail, and are deleted after the retention
			targets = append(targets, fmt.Sprintf("m1 x%02d", n), fmt.Sprintf("m2 x%02d", n))
		}
		d.set(t, spec, 100, intents("1", old...))
		synctest.Wait()
		time.Sleep(time.Minute)
		d.written()
		d.set(t, spec, 100, intents("1", append(old, targets...)...))
		time.Sleep(time.Minute)
		if n := strings.Count(d.written(), "@"); n != 10 {
			t.Errorf("%d corrections with room for 10", n)
		}
		if n := len(f.actions()); n != 20 {
			t.Errorf("%d Actions, at most 20 are allowed", n)
		}
		if st, _ := d.Status("b"); st.Waiting != remediate.WaitingForRoom || st.Pending != 10 || len(st.Halts) != 0 {
			t.Errorf("waiting %q, %d pending, halts %v", st.Waiting, st.Pending, st.Halts)
		}
		lines := scrape(t, registry)
		for _, want := range []string{"federator_actions_recorded 20\n", "federator_actions_recorded_limit 20\n", "federator_actions_exhausted 1\n"} {
			if !strings.Contains(lines, want) {
				t.Errorf("no %s in\n%s", want, lines)
			}
		}

		next := run(t, f, opts) // another leader
		if err := next.SetIntents("b", spec, remediate.Totals{Fleet: 100}, intents("1", append(old, targets...)...), true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		next.expect(t, "another leader", "")

		for _, a := range f.actions() {
			if a.Status.Phase == v1alpha1.PhaseSucceeded {
				if back, err := d.RollBack(t.Context(), a.Name, remediate.RollbackRequest{Reason: "a test"}); err != nil || back.Phase != v1alpha1.PhaseSucceeded {
					t.Errorf("a rollback without room: %+v, %v", back, err)
				}
				break
			}
		}
		d.written()
		if n := len(f.actions()); n != 21 {
			t.Errorf("%d Actions after a rollback", n)
		}
		next.ClearIntents("b") // one process is enough
		time.Sleep(2 * time.Hour)
		if n := strings.Count(d.written(), "@"); n != 9 || len(f.actions()) != 20 {
			t.Errorf("%d corrections after old Actions were deleted, %d Actions", n, len(f.actions()))
		}
		if st, _ := d.Status("b"); st.Waiting != remediate.WaitingForRoom || st.Pending != 1 {
			t.Errorf("waiting %q, %d pending", st.Waiting, st.Pending)
		}
	})
}

// TestDispatcher_BoundsTheBytesOfActions: one whose size is not known counts as the largest.
func TestDispatcher_BoundsTheBytesOfActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		for n := range 64 {
			at := metav1.NowMicro()
			f.record(t, &v1alpha1.Action{
				ObjectMeta: meta(fmt.Sprintf("of-another-%d", n)), Spec: v1alpha1.ActionSpec{Binding: "another", Verb: v1alpha1.Patch},
				Status: v1alpha1.ActionStatus{Phase: v1alpha1.PhaseFailed, StartedAt: &at, EndedAt: &at},
			})
		}
		d := run(t, f, remediate.Options{MaxActionBytes: 64 << 20, Retention: time.Hour})
		d.set(t, remediate.RolloutSpec{}, 100, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "64 of at most 64 MiB", "")
		if st, _ := d.Status("b"); st.Waiting != remediate.WaitingForRoom {
			t.Errorf("waiting %q", st.Waiting)
		}
		time.Sleep(2 * time.Hour)
		if got := d.written(); !strings.HasPrefix(got, "m1 a@") {
			t.Errorf("after they were deleted: %q", got)
		}
	})
}

// TestNew_RefusesBoundsOfActionsThatNothingKeeps: with them corrections would stop for good.
func TestNew_RefusesBoundsOfActionsThatNothingKeeps(t *testing.T) {
	f := newFleet()
	for name, opts := range map[string]remediate.Options{
		"without a retention": {MaxActions: 10}, "all are kept": {MaxActions: 10, Keep: 10, Retention: time.Hour},
		"negative": {MaxActions: -1, Retention: time.Hour}, "too few bytes": {MaxActionBytes: 1 << 20, Retention: time.Hour},
	} {
		opts.Clients, opts.Hub = f, f.client("hub", v1alpha1.SchemeGroupVersion())
		if _, err := remediate.New(opts); err == nil || errors.Is(err, remediate.ErrNotNow) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
