package coordinator_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/assignment"
	"federator.dev/federator/pkg/shards/internal/coordinator"
	"federator.dev/federator/pkg/shards/internal/shardmap"
	"federator.dev/federator/test/seed"
)

// skewed is a fleet whose load is anything but even: members differ by orders of magnitude, in each dimension by itself,
// drift, and have bursts.
type skewed struct {
	r     *rand.Rand
	base  []assignment.Load
	burst []int // minutes left
}

func newSkewed(r *rand.Rand, n int) *skewed {
	s := &skewed{r: r, base: make([]assignment.Load, n), burst: make([]int, n)}
	for i := range s.base {
		of := func(scale float64) float64 { return scale * math.Exp(1.3*r.NormFloat64()) }
		s.base[i] = assignment.Load{Bytes: of(100 << 20), Deltas: of(20), CPU: of(.05)}
	}
	return s
}

// minute lets the load drift.
func (s *skewed) minute() {
	for i := range s.base {
		drift := func(x float64) float64 { return x * math.Exp(.02*s.r.NormFloat64()) }
		b := &s.base[i]
		b.Bytes, b.Deltas, b.CPU = drift(b.Bytes), drift(b.Deltas), drift(b.CPU)
		if s.burst[i]--; s.r.IntN(500) == 0 {
			s.burst[i] = 5
		}
	}
}

// measured is what a process measures in some seconds: with noise.
func (s *skewed) measured(i int) assignment.Load {
	l, noise := s.base[i], 0.8+.4*s.r.Float64()
	l.Deltas, l.CPU = l.Deltas*noise, l.CPU*noise
	if s.burst[i] > 0 {
		l.Deltas, l.CPU = 4*l.Deltas, 4*l.CPU
	}
	return l
}

// hour is a leader that leads processes for an hour, whose members are spread by how many there are at first. It returns the
// imbalance of what the members have cost in the last half of it, of the map and of the best assignment, the least that it can be, and how many
// members have moved.
func hour(r *rand.Rand, processes, members, replication int) (imbalance, best float64, moved int) {
	load, l := newSkewed(r, members), &coordinator.Leader{Replication: replication}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var live []shardmap.Process
	for p := range processes {
		live = append(live, shardmap.Process{ID: fmt.Sprintf("federator-%02d", p), Epoch: 1, Address: "127.0.0.1:1"})
	}
	var fleet []coordinator.Described
	number := map[string]int{}
	for i := range members {
		name := fmt.Sprintf("fleet/m%04d", i)
		fleet, number[name] = append(fleet, coordinator.Described{Name: name, UID: name}), i
	}
	var m *shardmap.Map
	began := map[string]time.Time{}          // that a process reads a member
	last := make([]assignment.Load, members) // the mean of the last half of an hour
	for tick := range 720 {
		now = now.Add(5 * time.Second)
		if tick%12 == 0 {
			load.minute()
		}
		for i := range last {
			if tick >= 360 {
				is := load.measured(i)
				last[i].Bytes, last[i].Deltas, last[i].CPU = last[i].Bytes+is.Bytes/360, last[i].Deltas+is.Deltas/360, last[i].CPU+is.CPU/360
			}
		}
		reports := map[string]*coordinator.Report{}
		if m != nil {
			for _, p := range live {
				reports[p.ID] = &coordinator.Report{At: now, Epoch: 1, Version: m.Version, Seen: m.Version, Holds: map[string]coordinator.Hold{}}
			}
			for _, e := range m.Members {
				for _, id := range []string{e.Judge, e.Standby, e.Next} {
					if id == "" {
						continue
					}
					key := e.Name + " " + id
					if began[key].IsZero() {
						began[key] = now
					}
					ready := now.Sub(began[key]) > 20*time.Second
					reports[id].Holds[e.Name] = coordinator.Hold{UID: e.UID, Judge: id == e.Judge, Ready: ready, Measured: ready, Load: load.measured(number[e.Name])}
				}
			}
		}
		version := int64(0)
		if m != nil {
			version = m.Version
		}
		if d := l.Step(coordinator.Known{Now: now, Map: m, Hub: version, Live: live, Fleet: fleet, Complete: true, Reports: reports}); d.Map != nil {
			m = d.Map
		}
	}
	ids := make([]string, processes)
	all := make([]assignment.Member, members)
	at := map[string]int{"": assignment.None}
	for i, p := range live {
		ids[i], at[p.ID] = p.ID, i
	}
	for i, e := range m.Members {
		all[i] = assignment.Member{Name: e.Name, Load: last[number[e.Name]], Measured: true, Judge: at[e.Judge], Standby: at[e.Standby], Next: assignment.None}
	}
	p := assignment.New(ids, all, replication)
	return p.Imbalance(), max(p.Bound(), 1), l.Moved
}

// TestImbalance_OfAnHourOfSkewedLoad is row shard/imbalance of the benchmark, which simulates HOURS hours of each fleet.
func TestImbalance_OfAnHourOfSkewedLoad(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	worst, sum, n := 0.0, 0.0, 0
	fleets := []struct{ processes, members, replication int }{{3, 60, 1}, {4, 100, 1}, {4, 100, 2}, {8, 250, 1}, {8, 250, 2}, {10, 1000, 1}}
	hours, err := strconv.Atoi(os.Getenv("HOURS"))
	if err != nil {
		fleets, hours = fleets[:4], 1
	}
	for _, of := range fleets {
		for range hours {
			imbalance, best, moved := hour(r, of.processes, of.members, of.replication)
			ratio := imbalance / best
			t.Logf("%d processes, %d members, replication %d: %.3f, at best %.3f, ratio %.3f; %d moves", of.processes, of.members, of.replication, imbalance, best, ratio, moved)
			worst, sum, n = max(worst, ratio), sum+ratio, n+1
		}
	}
	t.Logf("imbalance after an hour of skewed load: %.3f times the best, %.3f at worst, of %d simulated hours", sum/float64(n), worst, n)
	if worst > 1.2 {
		t.Errorf("%.3f, want 1.2 at most", worst)
	}
}
