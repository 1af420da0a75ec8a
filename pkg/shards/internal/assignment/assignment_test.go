package assignment_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/shards/internal/assignment"
	"federator.dev/federator/test/seed"
)

// fleet returns members of skewed loads, of which dimensions do not follow from each other, and that nobody holds.
func fleet(r *rand.Rand, n int) []assignment.Member {
	out := make([]assignment.Member, n)
	for i := range out {
		skewed := func(scale float64) float64 { return scale * math.Exp(1.2*r.NormFloat64()) }
		out[i] = assignment.Member{
			Name: fmt.Sprintf("fleet/member-%d", i), Judge: assignment.None, Standby: assignment.None, Next: assignment.None, Prefers: assignment.None,
			Load: assignment.Load{Bytes: skewed(100 << 20), Deltas: skewed(20), CPU: skewed(.05)}, Measured: r.IntN(10) > 0, Ready: true,
		}
	}
	return out
}

func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("federator-%02d", i)
	}
	return out
}

// end ends what is under way.
func end(p *assignment.Plan) {
	for i := range p.Members {
		m := &p.Members[i]
		switch {
		case m.Next == assignment.None:
		case m.Aside:
			m.Standby = m.Next
		default:
			m.Judge = m.Next
		}
		m.Next, m.Aside, m.Fixed = assignment.None, false, false
	}
}

// TestPlan_PlacesAndMoves: each member has one judge, and a standby elsewhere; moves are as few as allowed, lower the imbalance,
// and end.
func TestPlan_PlacesAndMoves(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 200 {
		processes, members, replication := 1+r.IntN(7), r.IntN(150), 1+r.IntN(2)
		all := fleet(r, members)
		for i := range all {
			if r.IntN(2) == 0 {
				all[i].Judge = r.IntN(processes) // it is not well spread
			}
		}
		p := assignment.New(ids(processes), all, replication)
		p.Place()
		for _, m := range p.Members {
			if m.Judge == assignment.None || (m.Standby != assignment.None) != (replication > 1 && processes > 1) || m.Judge == m.Standby {
				t.Fatalf("%d processes, replication %d: judge %d, standby %d", processes, replication, m.Judge, m.Standby)
			}
		}
		for step := 0; ; step++ {
			before := p.Imbalance()
			moves := p.Moves(4)
			if len(moves) > 4 {
				t.Fatalf("%d moves at once", len(moves))
			}
			if len(moves) == 0 {
				break
			}
			if after := p.Imbalance(); after > before+1e-9 {
				t.Fatalf("moves made it worse: %v, before %v", after, before)
			}
			if step > 20*members {
				t.Fatal("moves do not end")
			}
			end(p)
			p = assignment.New(p.Processes, p.Members, replication)
		}
		if got, bound := p.Imbalance(), p.Bound(); got < bound-1e-9 {
			t.Fatalf("an imbalance of %v is below the bound %v", got, bound)
		}
		if members > 20*processes && processes > 1 {
			if ratio := p.Imbalance() / max(p.Bound(), 1); ratio > 1.2 {
				t.Errorf("%d processes, %d members, replication %d: %.3f, bound %.3f", processes, members, replication, p.Imbalance(), p.Bound())
			}
		}
	}
}

// TestPlan_IsTheSameInEveryProcess.
func TestPlan_IsTheSameInEveryProcess(t *testing.T) {
	at := func() []assignment.Member {
		p := assignment.New(ids(5), fleet(rand.New(rand.NewPCG(7, 7)), 200), 2)
		p.Place()
		p.Moves(50)
		return p.Members
	}
	a, b := at(), at()
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("%+v and %+v", a[i], b[i])
		}
	}
}

// TestPlan_PutsMembersBack: what is lost with a process comes back to it, as far as it fits.
func TestPlan_PutsMembersBack(t *testing.T) {
	all := fleet(rand.New(rand.NewPCG(1, 1)), 300)
	place := func(processes []string) map[string]string {
		p := assignment.New(processes, append([]assignment.Member(nil), all...), 1)
		p.Place()
		out := map[string]string{}
		for _, m := range p.Members {
			out[m.Name] = processes[m.Judge]
		}
		return out
	}
	before, without, home := place(ids(4)), place(ids(3)), 0
	for name, was := range before {
		if was == without[name] {
			home++
		}
	}
	if home < 150 {
		t.Errorf("of 300 members %d are where they were when one of four processes is gone", home)
	}
}

// TestPlan_LoadsAreBounded: what is no number, or too large to be one, moves nothing else.
func TestPlan_LoadsAreBounded(t *testing.T) {
	all := fleet(rand.New(rand.NewPCG(1, 1)), 10)
	all[0].Load, all[0].Measured = assignment.Load{Bytes: math.NaN(), Deltas: math.Inf(1), CPU: -1}, true
	p := assignment.New(ids(3), all, 1)
	p.Place()
	if x := p.Imbalance(); math.IsNaN(x) || math.IsInf(x, 0) {
		t.Error(x)
	}
}

func BenchmarkPlan(b *testing.B) {
	all := fleet(rand.New(rand.NewPCG(1, 1)), 10_000)
	for b.Loop() {
		p := assignment.New(ids(10), append([]assignment.Member(nil), all...), 2)
		p.Place()
		p.Moves(50)
	}
}
