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

// TestDispatcher_RecordsAnInterruptedSoakOnce: what is written while a wave soaks begins its soak
// again, which is one change of the record, however many passes follow.
func TestDispatcher_RecordsAnInterruptedSoakOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.onHub = func(string, string) *metav1.Status {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		d := run(t, f, remediate.Options{})
		puts := func() int {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.puts
		}
		d.set(t, twoWaves("1", time.Minute), 10, intents("1", "m1 a", "m2 b"))
		time.Sleep(30 * time.Second)
		d.expect(t, "the canary", "m1 a@0s")
		before := puts()
		d.set(t, twoWaves("1", time.Minute), 10, intents("2", "m1 a", "m2 b"))
		time.Sleep(10 * time.Second)
		d.expect(t, "drift of the canary", "m1 a@30s")
		if n := puts() - before; n == 0 || n > 2 {
			t.Errorf("the record was written %d times", n)
		}
		time.Sleep(40 * time.Second)
		d.expect(t, "while it soaks again", "")
	})
}

// TestDispatcher_EffectGateHalts: the violations of another policy rise in the canary.
func TestDispatcher_EffectGateHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var violations atomic.Int64
		violations.Store(3)
		d := run(t, newFleet(), remediate.Options{Verdicts: func(name string) map[string]remediate.Verdicts {
			if name != "slo" {
				t.Errorf("verdicts of %q", name)
			}
			return map[string]remediate.Verdicts{"m1": {Violations: int(violations.Load())}, "m2": {Violations: 100}}
		}})
		spec := twoWaves("1", time.Hour)
		spec.Waves[0].Effect = &remediate.EffectGate{Policies: []string{"slo"}}
		d.set(t, spec, 20, intents("1", "m1 a", "m2 b"))
		time.Sleep(10 * time.Minute)
		if st, _ := d.Status("b"); st.Halted != nil {
			t.Fatalf("halted: %+v", st.Halted)
		}
		violations.Store(4)
		time.Sleep(time.Minute)
		if got := d.halt(t); !strings.Contains(got.Message, `policy "slo" has 4 violations in member m1, 3 when the wave began`) {
			t.Errorf("halted: %+v", got)
		}
	})
}
