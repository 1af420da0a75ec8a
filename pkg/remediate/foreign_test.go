package remediate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_HaltsOutliveForeignWrites: a PolicyState that somebody else has written, or that
// is of an older backup of the hub, ends no halt that the leader knows of. What an earlier leader
// has acknowledged meanwhile has ended.
func TestDispatcher_HaltsOutliveForeignWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		d := run(t, f, remediate.Options{})
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}
		d.set(t, spec, 20, intents("1", "m1 a"))
		time.Sleep(time.Minute)
		d.expect(t, "within the limit", "m1 a@0s")
		backup := f.state("b")
		d.set(t, spec, 20, intents("1", "m1 b", "m1 c"))
		time.Sleep(time.Minute)
		halt := d.halt(t)
		f.putState("b", backup)
		spec.Approval = approved("1", 1).Approval
		d.set(t, spec, 20, intents("1", "m1 b", "m1 c")) // which is to be recorded
		time.Sleep(time.Minute)
		d.expect(t, "halted, though the hub has forgotten it", "")
		if got := d.halt(t); got.ID != halt.ID {
			t.Errorf("halt %s, want %s", got.ID, halt.ID)
		}
		recorded := f.state("b")
		if len(recorded.Halts) != 1 || recorded.Halts[0].ID != halt.ID || recorded.Approval == nil {
			t.Errorf("the hub has %+v", recorded)
		}

		recorded.Halts = nil
		recorded.History = append(recorded.History, v1alpha1.PolicyTransition{Type: v1alpha1.HaltEnded, ID: halt.ID})
		f.putState("b", recorded)
		spec.Approval.Required[0].Required++
		d.set(t, spec, 20, intents("1", "m1 b", "m1 c"))
		time.Sleep(time.Minute)
		if st, _ := d.Status("b"); len(st.Halts) > 0 || !st.Restored {
			t.Errorf("a halt that has ended is back: %+v", st.Halts)
		}
	})
}
