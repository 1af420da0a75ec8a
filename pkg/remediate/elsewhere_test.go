package remediate_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/remediate"
)

// TestDispatcher_GateAsksWhatOthersSay: what other processes have not said holds a write, from one moment to the next, and
// the status says what it is.
func TestDispatcher_GateAsksWhatOthersSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var silent atomic.Bool
		f.onDryRun = func(string) { silent.Store(true) } // between plan and write
		d := run(t, f, remediate.Options{Incomplete: func(policy string) string {
			if silent.Load() && policy == "b" {
				return "process x is silent"
			}
			return ""
		}})
		list := intents("1", "m1 a")
		d.put(&list[0])
		if err := d.SetIntents("b", remediate.RolloutSpec{Generation: "1"}, remediate.Totals{}, list, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		d.expect(t, "while a process is silent", "")
		if st, _ := d.Status("b"); !strings.Contains(st.Waiting, "process x is silent") {
			t.Errorf("waiting: %q", st.Waiting)
		}
		f.onDryRun = func(string) {}
		silent.Store(false)
		if err := d.UpdateIntents("b", remediate.RolloutSpec{Generation: "1"}, remediate.Totals{}, nil, nil, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		d.expect(t, "after it has spoken", "m1 a@1m0s")
	})
}

// TestDispatcher_WavesAskForHealthAtOnce_AndWaitForVerdicts: many targets are asked about together, and a gate on effects
// compares nothing that is not known.
func TestDispatcher_WavesAskForHealthAtOnce_AndWaitForVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		var known atomic.Bool
		var most atomic.Int64
		d := run(t, f, remediate.Options{
			Healths: func(list []remediate.Written) []remediate.Health {
				most.Store(max(most.Load(), int64(len(list))))
				out := make([]remediate.Health, len(list))
				for n := range out {
					out[n].Status = remediate.Healthy
				}
				return out
			},
			Verdicts: func(string) map[string]remediate.Verdicts {
				if known.Load() {
					return map[string]remediate.Verdicts{}
				}
				return nil
			},
		})
		list := intents("1", "m1 a", "m1 b", "m2 c")
		for n := range list {
			d.put(&list[n])
		}
		spec := remediate.RolloutSpec{Generation: "1", Waves: []remediate.Wave{
			{Name: "first", Members: map[string]bool{"m1": true}, Timeout: time.Hour, Effect: &remediate.EffectGate{Policies: []string{"other"}}},
			{Name: "second", Members: map[string]bool{"m2": true}, Timeout: time.Hour},
		}}
		if err := d.SetIntents("b", spec, remediate.Totals{}, list, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if st, _ := d.Status("b"); st.Wave == nil || st.Wave.Number != 1 || !strings.Contains(st.Waiting, "other") {
			t.Errorf("while verdicts are not known: %+v, %q", st.Wave, st.Waiting)
		}
		known.Store(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if st, _ := d.Status("b"); st.Wave == nil || st.Wave.Number != 2 || most.Load() < 2 {
			t.Errorf("after: %+v, asked about %d at once", st.Wave, most.Load())
		}
	})
}
