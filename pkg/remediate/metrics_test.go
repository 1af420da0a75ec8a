package remediate_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/remediate"
)

func TestDispatcher_Metrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		f := newFleet()
		f.onWrite = func(target string) *metav1.Status {
			if target == "m2 c" {
				return forbidden()
			}
			return nil
		}
		d := run(t, f, remediate.Options{Metrics: registry, Fleet: remediate.Limit{Count: 50}})
		expect := func(what, want string) {
			t.Helper()
			synctest.Wait()
			lines := scrape(t, registry)
			for line := range strings.Lines(want) {
				if !strings.Contains(lines, line) {
					t.Errorf("%s: no %s in\n%s", what, line, lines)
				}
			}
		}
		spec := remediate.RolloutSpec{
			Limits: remediate.Limits{Policy: remediate.Limit{Count: 3}, Member: remediate.Limit{Count: 3}, Fleet: remediate.Limit{Count: 20}},
			Waves:  []remediate.Wave{{Name: "first", Members: map[string]bool{"m1": true}}, {Name: "rest", Members: map[string]bool{"m2": true}, MaxFailed: 100}},
		}
		d.set(t, spec, 10, intents("1", "m1 a", "m1 b", "m2 c"))
		time.Sleep(10 * time.Second) // of the bubble: the second wave follows the first
		expect("after both waves", `federator_actions_total{binding="b",member="m1",outcome="Succeeded",policy="b"} 2
federator_actions_total{binding="b",member="m2",outcome="Failed",policy="b"} 1
federator_actions_writes_total{member="m1"} 2
federator_actions_writes_total{member="m2"} 1
federator_actions_pending{binding="b",policy="b"} 0
federator_actions_halted{binding="b",policy="b"} 0
federator_actions_budget_limit{binding="b",member="",policy="b",scope="policy"} 3
federator_actions_budget_remaining{binding="b",member="",policy="b",scope="fleet"} 17
federator_actions_budget_limit{binding="b",member="",policy="b",scope="fleet"} 20
federator_actions_wave{binding="b",phase="Done",policy="b"} 2
federator_actions_waves{binding="b",policy="b"} 2
federator_actions_wave_unhealthy{binding="b",policy="b"} 0
federator_actions_stopped 0
federator_actions_leader 1
`)
		d.SetStops(remediate.Stops{All: "for a reason"})
		expect("stopped", "federator_actions_stopped 1\n")
		d.SetStops(remediate.Stops{})
		d.set(t, spec, 10, intents("2", "m1 a", "m1 b", "m2 d", "m2 e"))
		expect("over a limit", `federator_actions_halted{binding="b",policy="b"} 1
federator_actions_pending{binding="b",policy="b"} 4
federator_actions_budget_remaining{binding="b",member="",policy="b",scope="policy"} -1
federator_actions_budget_used{binding="b",member="",policy="b",scope="policy"} 4
federator_actions_budget_used{binding="b",member="m1",policy="b",scope="member"} 2
federator_actions_budget_remaining{binding="b",member="m2",policy="b",scope="member"} 1
`)
		expect("under deprecated names", `federator_actions_budget_left{binding="b",member="",policy="b",scope="policy"} -1
federator_actions_budget_spent{binding="b",member="",policy="b",scope="policy"} 4
federator_actions_budget_spent{binding="b",member="m1",policy="b",scope="member"} 2
federator_actions_budget_left{binding="b",member="m2",policy="b",scope="member"} 1
`)
		d.RemovePolicy("b")
		if n, err := testutil.GatherAndCount(registry, "federator_actions_total", "federator_actions_halted", "federator_actions_budget_remaining", "federator_actions_budget_left"); err != nil || n != 0 {
			t.Errorf("%d series of a policy that is gone, %v", n, err)
		}
	})
}

// scrape returns what a registry has, a line for each series.
func scrape(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			fmt.Fprintln(&out, name, m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return out.String()
}
