package remediate

import (
	"fmt"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

// BenchmarkDispatcher_Completion is a plan after the end of one correction, of as many as are
// pending: it costs what has changed, and reports how much more 20,000 cost than 100.
func BenchmarkDispatcher_Completion(b *testing.B) {
	cost := map[int]float64{}
	for _, pending := range []int{100, 20_000} {
		b.Run(fmt.Sprint(pending), func(b *testing.B) {
			d, err := newDispatcher(Options{Clients: memberClients{}, Clock: time.Now, MemberConcurrency: 1}, nil, nil, planstore.Store{})
			if err != nil {
				b.Fatal(err)
			}
			d.recovered = true
			var intents []Intent
			for n := range pending {
				intents = append(intents, Intent{Binding: "b", UID: "u", ResourceVersion: "1", Remedy: policy.Remedy{
					Action: "patch", Target: policy.Ref{Member: fmt.Sprintf("fleet/m%d", n%100), Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(n)},
				}})
			}
			spec := RolloutSpec{Limits: Limits{Policy: Limit{Count: 1_000_000}, Member: Limit{Count: 1_000_000}}}
			if err := d.SetIntents("b", spec, Totals{Fleet: pending}, intents, true); err != nil {
				b.Fatal(err)
			}
			s := d.policies["b"]
			d.plan(time.Now())
			s.saved = s.changed // as if it were recorded
			running := d.plan(time.Now()).start
			for b.Loop() {
				i := running[0]
				target := i.Remedy.Target
				now := time.Now()
				delete(d.busy, target)
				delete(d.inflight, target.Member)
				// It is superseded, and due again with a newer version.
				s.recordOutcome(i, &Action{Phase: v1alpha1.PhaseSuperseded}, nil, now, time.Minute)
				s.set(&desiredIntent{Intent: i, name: fmt.Sprint(b.N, now.UnixNano())}, now)
				running = append(running[1:], d.plan(now).start...)
			}
			cost[pending] = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if cost[100] > 0 {
				b.ReportMetric(cost[pending]/cost[100], "times-100-pending")
			}
		})
	}
}

// statusOf returns a Dispatcher whose policy b has written as many targets.
func statusOf(tb testing.TB, written int) *Dispatcher {
	tb.Helper()
	d, err := newDispatcher(Options{Clients: memberClients{}, Clock: time.Now}, nil, nil, planstore.Store{})
	if err != nil {
		tb.Fatal(err)
	}
	if err := d.SetIntents("b", RolloutSpec{}, Totals{}, nil, true); err != nil {
		tb.Fatal(err)
	}
	for n := range written {
		d.policies["b"].restoreWrite(&Action{Phase: v1alpha1.PhaseSucceeded, Ended: time.Now(), Intent: Intent{Remedy: policy.Remedy{
			Target: policy.Ref{Member: fmt.Sprintf("fleet/m%d", n%100), Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(n)},
		}}})
	}
	return d
}

// TestDispatcher_StatusCostsNothingByTarget: several ask for it, up to ten times a second, and the
// gate of writes waits meanwhile.
func TestDispatcher_StatusCostsNothingByTarget(t *testing.T) {
	allocations := func(written int) float64 {
		d := statusOf(t, written)
		return testing.AllocsPerRun(10, func() {
			if st, ok := d.Status("b"); !ok || st.Phases[v1alpha1.PhaseSucceeded] != written {
				t.Errorf("%v, want %d", st.Phases, written)
			}
		})
	}
	if few, many := allocations(1), allocations(5000); many > few {
		t.Errorf("%g allocations with 5,000 targets, %g with one", many, few)
	}
}

// BenchmarkDispatcher_Status is a status of a policy that has written as many targets.
func BenchmarkDispatcher_Status(b *testing.B) {
	for _, written := range []int{100, 100_000} {
		b.Run(fmt.Sprint(written), func(b *testing.B) {
			d := statusOf(b, written)
			b.ReportAllocs()
			for b.Loop() {
				d.Status("b")
			}
		})
	}
}

// BenchmarkDispatcher_Acknowledged is what it takes to see which of 200,000 targets are covered
// once a halt over the limits of 500 members is acknowledged, half of which its Plan has; and
// to check the limits then.
func BenchmarkDispatcher_Acknowledged(b *testing.B) {
	const targets, members = 200_000, 500
	d, err := newDispatcher(Options{Clients: memberClients{}, Clock: time.Now}, nil, nil, planstore.Store{})
	if err != nil {
		b.Fatal(err)
	}
	d.recovered = true
	var intents []Intent
	for n := range targets {
		intents = append(intents, Intent{Binding: "b", UID: "u", ResourceVersion: "1", Remedy: policy.Remedy{
			Action: "patch", Target: policy.Ref{Member: fmt.Sprintf("fleet/m%d", n%members), Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(n)},
		}})
	}
	spec := RolloutSpec{Generation: "1", Limits: Limits{Member: Limit{Count: 1}}}
	if err := d.SetIntents("b", spec, Totals{Fleet: targets}, intents, true); err != nil {
		b.Fatal(err)
	}
	s, now := d.policies["b"], time.Now()
	p := &plan{PlanInfo: PlanInfo{Name: "p", Purpose: v1alpha1.PlanHalt}, targets: map[plans.Key]bool{}}
	for _, i := range s.intents {
		if len(p.targets) < targets/2 {
			p.targets[i.key()] = true
		}
	}
	s.plans = []*plan{p}
	for n := range members {
		s.allowances = append(s.allowances, allowance{scope: v1alpha1.AllowanceScope(v1alpha1.MemberScope), member: fmt.Sprintf("fleet/m%d", n), generation: "1", targets: targets, expires: now.Add(time.Hour), plan: "p"})
	}
	b.Run("covered", func(b *testing.B) {
		for b.Loop() {
			for target := range s.intents {
				s.updateDue(target, now)
			}
		}
	})
	b.Run("limits", func(b *testing.B) {
		for b.Loop() {
			d.checkLimitsLocked(s, now)
		}
	})
}
