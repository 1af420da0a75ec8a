package remediate_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_AcknowledgesFailuresOfAnotherLeader: what failed under the leader that halted
// does not halt the next one again once that halt is acknowledged. What else fails does.
func TestDispatcher_AcknowledgesFailuresOfAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.onWrite = func(target string) *metav1.Status {
			if target != "m2 b" {
				return forbidden()
			}
			return nil
		}
		a, leadA := replica(t, f, remediate.Options{})
		b, leadB := replica(t, f, remediate.Options{})
		leadA(true)
		for _, d := range []*running{a, b} {
			d.set(t, twoWaves("1", time.Hour), 20, intents("1", "m1 a", "m2 b"))
		}
		acknowledge := func(h *remediate.Halt) {
			t.Helper()
			if err := b.Acknowledge("b", h.ID, "ann"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if st, _ := b.Status("b"); st.Halted != nil {
				t.Fatalf("halted again: %+v", st.Halted)
			}
		}
		halt := a.halt(t)
		failover(leadA, leadB)
		acknowledge(halt)
		b.set(t, twoWaves("1", time.Hour), 20, intents("1", "m1 a", "m1 c", "m2 b"))
		halt = b.halt(t)
		if !strings.Contains(halt.Message, "1 of 2 corrections failed") {
			t.Errorf("another failure: %+v", halt)
		}
		acknowledge(halt)
		failover(leadB, leadA) // a second one
		time.Sleep(10 * time.Minute)
		if st, _ := a.Status("b"); st.Halted != nil {
			t.Fatalf("halted again by what was acknowledged: %+v", st.Halted)
		}
		failover(leadA, leadB)
		time.Sleep(2 * time.Hour)
		if got := b.written(); !strings.Contains(got, "m2 b@") {
			t.Errorf("after the acknowledgements: %q", got)
		}
	})
}

// TestDispatcher_UnhealthyHaltEndsWhenWhatWasWrittenIsHealthy: once the policy has been changed,
// whenever that is, and though nothing else happens.
func TestDispatcher_UnhealthyHaltEndsWhenWhatWasWrittenIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var status atomic.Uint32
		status.Store(uint32(remediate.Degraded))
		d := run(t, newFleet(), remediate.Options{Health: func(remediate.Written) remediate.Health {
			return remediate.Health{Status: remediate.HealthStatus(status.Load())}
		}})
		d.set(t, twoWaves("1", 0), 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(time.Minute)
		d.halt(t)
		d.set(t, twoWaves("2", 0), 20, intents("1", "m2 b"))
		time.Sleep(10 * time.Minute)
		d.halt(t)
		status.Store(uint32(remediate.Healthy))
		time.Sleep(10 * time.Second)
		if got := d.written(); !strings.Contains(got, "m2 b@") {
			st, _ := d.Status("b")
			t.Errorf("written: %q, %+v", got, st.Halted)
		}
	})
}

// TestDispatcher_AcknowledgementsEndWithTheirApprovals: what they allow ends when the Approvals do,
// under any leader.
func TestDispatcher_AcknowledgementsEndWithTheirApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.onWrite = func(target string) *metav1.Status {
			if target == "m1 b" {
				return failure(503, metav1.StatusReasonServiceUnavailable, "")
			}
			return nil
		}
		a, leadA := replica(t, f, remediate.Options{RetryAfter: time.Hour})
		b, leadB := replica(t, f, remediate.Options{RetryAfter: time.Hour})
		leadA(true)
		spec := remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}, Window: 12 * time.Hour}}
		a.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		b.set(t, spec, 20, intents("1", "m1 a", "m1 b"))
		time.Sleep(2 * time.Second)
		if err := a.AcknowledgeUntil("b", a.halt(t).ID, "ann, bob", time.Now().Add(30*time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		failover(leadA, leadB)
		if got := b.written(); !strings.Contains(got, "m1 a@") {
			t.Errorf("approved: %q", got)
		}
		time.Sleep(2 * time.Minute) // what has failed is tried again
		b.written()
		time.Sleep(2 * time.Hour)
		b.expect(t, "after the Approvals have ended", "")
		if h := b.halt(t); h.Reason != v1alpha1.OverLimit {
			t.Errorf("halted: %+v", h)
		}
	})
}

// TestDispatcher_WithdrawnApprovalsOfAHaltAllowNothing: who deletes an Approval withdraws what it
// allowed.
func TestDispatcher_WithdrawnApprovalsOfAHaltAllowNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := run(t, newFleet(), remediate.Options{})
		spec := approved("1", 1)
		spec.Limits = remediate.Limits{Policy: remediate.Limit{Count: 1}, PerMinute: 1, Window: 12 * time.Hour}
		d.set(t, spec, 20, intents("1", "m1 a", "m1 b", "m1 c"))
		generation := d.waiting(t)
		d.approve(generation)
		time.Sleep(time.Second)
		halt, ofHalt := d.halt(t), d.waiting(t)
		if ofHalt.Halt != halt.ID {
			t.Fatalf("waits: %+v", ofHalt)
		}
		d.approve(generation, ofHalt)
		if err := d.AcknowledgeUntil("b", halt.ID, "bob, eve", time.Now().Add(10*time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if got := d.written(); strings.Count(got, "@") != 1 {
			t.Fatalf("one a minute: %q", got)
		}
		d.approve(generation)
		time.Sleep(time.Hour)
		d.expect(t, "withdrawn", "")
		if again := d.halt(t); again.ID == halt.ID {
			t.Errorf("halted: %+v", again)
		}
	})
}

// TestDispatcher_HaltsThatWereHandedOutStay: that the Plan of a halt is recorded changes nothing
// that a reader has been given before, and may be reading.
func TestDispatcher_HaltsThatWereHandedOutStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var full atomic.Bool
		full.Store(true)
		f.onHub = func(method, path string) *metav1.Status {
			if full.Load() && method == http.MethodPost && strings.Contains(path, "/plan") {
				return forbidden()
			}
			return nil
		}
		d := run(t, f, remediate.Options{})
		d.set(t, remediate.RolloutSpec{Generation: "1", Limits: remediate.Limits{Policy: remediate.Limit{Count: 1}}}, 20, intents("1", "m1 a", "m1 b"))
		time.Sleep(10 * time.Second)
		before := d.halt(t)
		full.Store(false)
		time.Sleep(time.Minute)
		if now := d.halt(t); now.Plan == "" || before.Plan != "" || now.ID != before.ID {
			t.Errorf("the halt is %+v, and was %+v", now, before)
		}
	})
}
