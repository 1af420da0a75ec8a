package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"federator.dev/federator/pkg/shards/internal/coordinator"
	"federator.dev/federator/pkg/shards/internal/shardmap"
)

// BenchmarkStep is a step of a leader of 10,000 members and ten processes.
func BenchmarkStep(b *testing.B) {
	load := newSkewed(rand.New(rand.NewPCG(1, 1)), 10_000)
	k := coordinator.Known{Now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Complete: true}
	for p := range 10 {
		k.Live = append(k.Live, shardmap.Process{ID: fmt.Sprintf("federator-%02d", p), Epoch: 1, Address: "127.0.0.1:1"})
	}
	for i := range load.base {
		name := fmt.Sprintf("fleet/m%05d", i)
		k.Fleet = append(k.Fleet, coordinator.Described{Name: name, UID: name})
	}
	l := &coordinator.Leader{Replication: 2}
	for b.Loop() {
		b.StopTimer()
		k.Now = k.Now.Add(5 * time.Second)
		k.Reports = map[string]*coordinator.Report{}
		if k.Map != nil {
			for _, p := range k.Live {
				k.Reports[p.ID] = &coordinator.Report{At: k.Now, Epoch: 1, Version: k.Map.Version, Seen: k.Map.Version, Holds: map[string]coordinator.Hold{}}
			}
			for i, e := range k.Map.Members {
				for _, id := range []string{e.Judge, e.Standby, e.Next} {
					if id != "" {
						k.Reports[id].Holds[e.Name] = coordinator.Hold{UID: e.UID, Judge: id == e.Judge, Ready: true, Measured: true, Load: load.measured(i)}
					}
				}
			}
		}
		b.StartTimer()
		if d := l.Step(k); d.Map != nil {
			k.Map, k.Hub = d.Map, d.Map.Version
		}
	}
}
