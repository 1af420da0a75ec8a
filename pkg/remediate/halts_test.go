package remediate_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
