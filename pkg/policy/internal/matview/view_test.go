package matview

import (
	"fmt"
	"runtime"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestView_CountsTheBytesThatItHolds fills a view, and then changes objects here and there after
// each state: what it says that it holds, and that each state keeps alive, is near what
// they take. Objects of one entry are the dearest: each has a contrib, and a change of
// one replaces whole nodes.
func TestView_CountsTheBytesThatItHolds(t *testing.T) {
	const entries = 60_000
	for _, keys := range []int{1, 3, 100} {
		t.Run(fmt.Sprintf("%d keys", keys), func(t *testing.T) {
			objects := entries / keys
			v := New(1, &module.Package{}, module.View{})
			set := func(i, generation int) {
				c := &objectEntries{Ref: aggregate.Ref{Kind: "Ingress.networking.k8s.io", Member: "fleet/eu-1", Namespace: "default", Name: fmt.Sprint("ingress-", i)}}
				next := Contribution{objectEntries: c}
				for k := range keys {
					c.keys = append(c.keys, fmt.Sprintf("host-%06d-%04d.example.com", i, k))
					next.values = append(next.values, fmt.Sprintf(`["ingress-%d-%d"]`, i, generation))
				}
				v.Apply(c.Ref, next, 1<<40, func(string) {})
			}
			before := heap()
			for i := range objects {
				set(i*7919%objects, 0)
			}
			if holds := heap() - before; v.Held < holds*3/4 || v.Held > holds*3/2 {
				t.Errorf("it says %d KiB, and holds %d", v.Held>>10, holds>>10)
			}
			v.TakeSuperseded()
			var states []*View
			var dropped int64
			before = heap()
			for n := range 20 {
				states = append(states, v.Freeze())
				for i := n; i < objects; i += 50 {
					set(i, n+1)
				}
				dropped += v.TakeSuperseded()
			}
			if keeps := heap() - before; dropped < keeps*3/4 {
				t.Errorf("it says that states keep %d KiB, and they keep %d", dropped>>10, keeps>>10)
			}
			runtime.KeepAlive(states)
			runtime.KeepAlive(v)
		})
	}
}
