package remediate_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_TakesOverWheneverItLeads: another process may have led in between, while
// this one had nothing to do.
func TestDispatcher_TakesOverWheneverItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var follows atomic.Bool
		d := run(t, newFleet(), remediate.Options{CheckLeader: func() error {
			if follows.Load() {
				return errors.New("another process is the leader")
			}
			return nil
		}})
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
