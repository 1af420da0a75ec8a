package remediate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_StopsByScope: a stop of one policy, member or source holds that, and nothing
// else.
func TestDispatcher_StopsByScope(t *testing.T) {
	for what, c := range map[string]struct {
		stops   remediate.Stops
		want    string
		waiting string
	}{
		"the policy":     {remediate.Stops{Policies: map[string]string{"b": "by ann"}}, "", "the policy is stopped: by ann"},
		"another policy": {remediate.Stops{Policies: map[string]string{"c": "by ann"}}, "m1 a@0s, m2 b@0s", ""},
		"the source":     {remediate.Stops{Sources: map[string]string{"git": ""}}, "", "its source git is stopped: for no given reason"},
		"another source": {remediate.Stops{Sources: map[string]string{"other": ""}}, "m1 a@0s, m2 b@0s", ""},
		"a member":       {remediate.Stops{Members: map[string]string{"m1": "by ann"}}, "m2 b@0s", "member m1 is stopped: by ann"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := run(t, newFleet(), remediate.Options{})
				d.SetStops(c.stops)
				list := intents("1", "m1 a", "m2 b")
				for n := range list {
					list[n].Source = "git"
				}
				d.set(t, remediate.RolloutSpec{Source: "git"}, 20, list)
				d.expect(t, "stopped", c.want)
				if st, _ := d.Status("b"); st.Waiting != c.waiting {
					t.Errorf("waiting: %q, want %q", st.Waiting, c.waiting)
				}
				d.SetStops(remediate.Stops{})
				synctest.Wait()
				if st, _ := d.Status("b"); st.Pending != 0 {
					t.Errorf("after the stop: %+v", st)
				}
			})
		})
	}
}

// TestDispatcher_StopBetweenPlanAndWriteHolds: stops are checked right before the write.
func TestDispatcher_StopBetweenPlanAndWriteHolds(t *testing.T) {
	for what, stops := range map[string]remediate.Stops{
		"all":    {All: "by ann"},
		"policy": {Policies: map[string]string{"b": "by ann"}},
		"member": {Members: map[string]string{"m1": "by ann"}},
		"source": {Sources: map[string]string{"git": "by ann"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet()
			var d *running
			f.onDryRun = func(string) { d.SetStops(stops) }
			d = run(t, f, remediate.Options{})
			list := intents("1", "m1 a")
			list[0].Source = "git"
			d.set(t, remediate.RolloutSpec{Source: "git"}, 20, list)
			time.Sleep(time.Minute)
			d.expect(t, what, "")
		})
	}
}

// TestDispatcher_WriteEndsWithItsLease: the next leader writes only after it.
func TestDispatcher_WriteEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var ended time.Duration
		var d *running
		f.onRequest = func(ctx context.Context) error {
			began := time.Now()
			<-ctx.Done()
			if ended == 0 {
				ended = time.Since(began)
			}
			return context.Cause(ctx)
		}
		until := time.Now().Add(4 * time.Second)
		d = run(t, f, remediate.Options{Lease: func() (time.Time, error) {
			if !time.Now().Before(until) {
				return time.Time{}, errors.New("another process is the leader")
			}
			return until, nil
		}})
		d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
		time.Sleep(time.Hour)
		if got := d.written(); ended != 4*time.Second || strings.Count(got, "@") != 1 {
			t.Errorf("the write ended after %v, want 4s; written: %q", ended, got)
		}
	})
}

// TestDispatcher_ConfiguredProtectionHolds: what the configuration protects is recorded as
// Protected, and not written.
func TestDispatcher_ConfiguredProtectionHolds(t *testing.T) {
	for what, protection := range map[string]remediate.Protection{
		"kind":      {Kinds: []string{"Config*"}},
		"namespace": {Namespaces: []string{"*"}},
		"nothing":   {Kinds: []string{"Secret"}, Namespaces: []string{"*-system"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := run(t, newFleet(), remediate.Options{Protection: protection})
			d.set(t, remediate.RolloutSpec{}, 20, intents("1", "m1 a"))
			time.Sleep(time.Minute)
			synctest.Wait()
			st, _ := d.Status("b")
			if n := st.Phases[v1alpha1.PhaseProtected]; (n == 1) != (what != "nothing") || (d.written() == "") != (what != "nothing") {
				t.Errorf("%s: %d protected, written %q", what, n, d.written())
			}
		})
	}
}
