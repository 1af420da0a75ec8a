package remediate_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_HeldMemberIsNotWritten: its corrections wait, those of other members do
// not, and waves wait for it.
func TestDispatcher_HeldMemberIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Bool
		paused.Store(true)
		d := run(t, newFleet(), remediate.Options{Held: func(member string) error {
			if member == "m1" && paused.Load() {
				return errors.New("m1 is paused")
			}
			return nil
		}})
		spec := remediate.RolloutSpec{Limits: remediate.Limits{Policy: remediate.Limit{Count: 100}}}
		d.set(t, spec, 10, intents("1", "m1 a", "m2 a"))
		d.expect(t, "with m1 paused", "m2 a@0s")
		if st, _ := d.Status("b"); st.Pending != 1 || st.Waiting != "m1 is paused" {
			t.Errorf("%d pending, waiting: %q", st.Pending, st.Waiting)
		}
		time.Sleep(10 * time.Second)
		d.expect(t, "ten seconds later", "")
		paused.Store(false)
		time.Sleep(2 * time.Second)
		d.expect(t, "resumed", "m1 a@11s")
		if st, _ := d.Status("b"); st.Waiting != "" {
			t.Errorf("waiting: %q", st.Waiting)
		}

		paused.Store(true)
		spec.Generation, spec.Waves = "2", []remediate.Wave{{Name: "first", Members: map[string]bool{"m1": true}}, {Name: "second", Members: map[string]bool{"m2": true}}}
		d.set(t, spec, 10, intents("2", "m1 b", "m2 b"))
		time.Sleep(time.Minute)
		d.expect(t, "the first wave is paused", "")
		paused.Store(false)
		time.Sleep(2 * time.Second)
		if got := d.written(); !strings.Contains(got, "m1 b@") || !strings.Contains(got, "m2 b@") {
			t.Errorf("after both waves: %q", got)
		}
	})
}

// TestDispatcher_WaveEndsByWhatIsSoWhenThatIsRecorded: a member that goes away while the hub takes its
// time to record that a wave has begun holds that wave, with nothing to write too.
func TestDispatcher_WaveEndsByWhatIsSoWhenThatIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away, slow atomic.Bool
		f := newFleet()
		f.onHub = func(method, path string) *metav1.Status {
			if slow.Load() && method == "PUT" && strings.Contains(path, v1alpha1.PolicyStates) {
				time.Sleep(5 * time.Second)
			}
			return nil
		}
		d := run(t, f, remediate.Options{MemberAway: func(member string) error {
			if member == "m1" && away.Load() {
				return errors.New("m1 is away")
			}
			return nil
		}})
		one := twoWaves("1", 0)
		d.done(t, one)
		d.set(t, one, 20, intents("1", "m1 x")) // health is looked at, and again once the next wave is to end
		synctest.Wait()
		slow.Store(true)
		d.set(t, replacing(one, 1), 20, nil)
		time.Sleep(2 * time.Second)
		away.Store(true)
		time.Sleep(time.Minute)
		if r := f.state("b").Rollout; r.Generation != "2" || r.Wave != 1 {
			t.Errorf("recorded %+v while m1 is away", r)
		}
		if w, st := d.wave(t); w.Number != 1 || st.Waiting != `wave "canary" waits: m1 is away` {
			t.Errorf("%+v, waiting %q", w, st.Waiting)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if r := f.state("b").Rollout; r.Wave != 2 {
			t.Errorf("recorded %+v when m1 is back", r)
		}
	})
}

// TestDispatcher_UnreadMembersAreNotWritten: neither as is planned nor where that is found out between
// plan and write; others are, but not in a later wave.
func TestDispatcher_UnreadMembersAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var d *running
		unread := remediate.Totals{Fleet: 20, Unread: map[string]bool{"m1": true}}
		both := intents("1", "m1 a", "m2 b")
		set := func(totals remediate.Totals, list ...remediate.Intent) {
			if err := d.SetIntents("b", remediate.RolloutSpec{}, totals, list, true); err != nil {
				t.Error(err)
			}
		}
		f.onDryRun = func(target string) {
			if target == "m1 c" {
				set(unread, intents("1", "m1 c")...)
			}
		}
		d = run(t, f, remediate.Options{})
		for i := range both {
			d.put(&both[i])
		}
		set(unread, both...)
		time.Sleep(10 * time.Second)
		d.expect(t, "m1 is not read", "m2 b@0s")
		set(remediate.Totals{Fleet: 20}, both...)
		time.Sleep(10 * time.Second)
		d.expect(t, "m1 is read", "m1 a@10s")
		late := intents("1", "m1 c")
		d.put(&late[0])
		set(remediate.Totals{Fleet: 20}, late...)
		time.Sleep(10 * time.Second)
		d.expect(t, "m1 is not read since the plan", "")
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "not all that the policy reads of member m1 has been read yet") {
			t.Errorf("waiting: %q", st.Waiting)
		}
	})
}

// TestDispatcher_PauseBetweenPlanAndWriteHolds: the hold is checked right before the write,
// of corrections and rollbacks, and what is held has not failed.
func TestDispatcher_PauseBetweenPlanAndWriteHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Bool
		f := newFleet()
		f.onDryRun = func(string) { paused.Store(true) } // right before the write
		d := run(t, f, remediate.Options{Held: func(string) error {
			if paused.Load() {
				return errors.New("m1 is paused")
			}
			return nil
		}})
		d.set(t, remediate.RolloutSpec{}, 10, intents("1", "m1 a"))
		time.Sleep(10 * time.Second)
		d.expect(t, "paused after the dry run", "")
		if st, _ := d.Status("b"); st.Pending != 1 || len(st.Phases) != 0 {
			t.Errorf("status %+v", st)
		}
		recorded := d.actions()
		if len(recorded) != 1 || recorded[0].Status.Attempts != 0 || recorded[0].Ended() {
			t.Errorf("recorded %+v", recorded)
		}
		f.onDryRun = nil
		paused.Store(false)
		time.Sleep(2 * time.Second)
		if got := d.written(); !strings.HasPrefix(got, "m1 a@") {
			t.Errorf("resumed: %q", got)
		}

		f.onDryRun = func(string) { paused.Store(true) }
		if _, err := d.RollBack(t.Context(), recorded[0].Name, remediate.RollbackRequest{Reason: "a test"}); !errors.Is(err, remediate.ErrNotNow) {
			t.Errorf("a rollback that is paused after its dry run: %v", err)
		}
		if _, err := d.RollBack(t.Context(), recorded[0].Name, remediate.RollbackRequest{Reason: "a test"}); !errors.Is(err, remediate.ErrNotNow) {
			t.Errorf("a rollback in a paused member: %v", err)
		}
		d.expect(t, "rollbacks", "")
		f.onDryRun = nil
		paused.Store(false)
		if a, err := d.RollBack(t.Context(), recorded[0].Name, remediate.RollbackRequest{Reason: "a test"}); err != nil || a.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("resumed: %+v, %v", a, err)
		}
	})
}
