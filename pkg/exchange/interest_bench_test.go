package exchange_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/interest"
)

// named is an export whose keys are names alone, which are looked up as policies' exports do: without reading objects.
type named struct{ export }

func (x named) Keys(member string, kind aggregate.Kind, yield func(namespace, name string, k *interest.Keys) error) error {
	var k interest.Keys
	space := interest.Names(kind)
	for o := range x.Objects(member, kind) {
		k.Reset()
		k.Add(space, interest.NameBucket(o.Namespace(), o.Name()))
		if err := yield(o.Namespace(), o.Name(), &k); err != nil {
			return err
		}
	}
	return nil
}

func (x named) KeysOf(ref aggregate.Ref, k *interest.Keys) {
	k.Reset()
	if _, ok := x.Get(ref); ok {
		k.Add(interest.Names(ref.Kind), interest.NameBucket(ref.Namespace, ref.Name))
	}
}

func (x named) Find(set *interest.Set, look func() error, yield func(aggregate.Ref) error) error {
	for info := range x.Scopes("") {
		has := set.Of(interest.Names(info.Kind))
		for o := range x.Objects(info.Member, info.Kind) {
			if !has(interest.NameBucket(o.Namespace(), o.Name())) {
				continue
			}
			if err := yield(o.Ref()); err != nil {
				return err
			}
		}
	}
	return nil
}

// share has the names of some of so many pods.
func share(b testing.TB, pods, every, from int) *interest.Set {
	b.Helper()
	var set interest.Builder
	r := rand.New(rand.NewPCG(1, 1))
	for n := from; n < pods; n += every {
		rec := podRecord(r, n, 0)
		set.Add(interest.Names("Pod"), interest.NameBucket(rec.Namespace, rec.Name))
	}
	return set.Take()
}

// judging is a process with pods in members of 20,000.
func judging(b testing.TB, pods int) (a *process, fleet []string) {
	b.Helper()
	const each = 20_000
	a = newProcess(b, "a", exchange.ExporterOptions{Gather: time.Nanosecond})
	a.history, a.as = nil, func(s *aggregate.Snapshot) exchange.Export { return named{export{s}} }
	r := rand.New(rand.NewPCG(1, 1))
	for first := 0; first < pods; first += each {
		member := fmt.Sprintf("fleet/%03d", first/each)
		a.put(member, member)
		all := make([]*aggregate.Record, 0, each)
		for n := first; n < min(pods, first+each); n++ {
			all = append(all, podRecord(r, n, 0))
		}
		a.replace(member, "Pod", "digest", all...)
		fleet = append(fleet, member, "a")
	}
	a.tell()
	return a, fleet
}

func heapBytes() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkInterest is what it costs to tell everything, 10 % and 1 % of 100,000 pods: once, and as 1,000 of them change.
func BenchmarkInterest(b *testing.B) {
	const pods, changes = 100_000, 1000
	a, fleet := judging(b, pods)
	x := a.exporter.Load()
	eventually(b, func() string {
		if metric(b, x, "exported_records", "") < pods {
			return "the exporter does not have all"
		}
		return ""
	})
	type cost struct{ heap, sent, cpu, told, toldCPU float64 }
	costs := map[string]cost{}
	for b.Loop() {
		for _, c := range []struct {
			name string
			set  *interest.Set
		}{{"everything", interest.Everything()}, {"10 %", share(b, pods, 10, 0)}, {"1 %", share(b, pods, 100, 0)}} {
			before, sent, cpu := heapBytes(), metric(b, x, "sent_bytes_total", ""), cputime.Process()
			i, end := startImporting(b, exchange.ImporterOptions{}, func(i *importing) { i.SetInterest(c.set) }, a)
			i.fleet(fleet...)
			reached := func() {
				eventually(b, func() string {
					for n := 0; n < len(fleet); n += 2 {
						if !i.Complete(fleet[n]) || i.Status()[0].Frontier.Sequence != uint64(metric(b, x, "sequence", "")) {
							return fmt.Sprintf("%s: %+v", c.name, i.Status())
						}
					}
					return ""
				})
			}
			reached()
			got := cost{sent: metric(b, x, "sent_bytes_total", "") - sent, cpu: float64((cputime.Process() - cpu).Microseconds())}
			got.heap = heapBytes() - before
			sent, cpu = metric(b, x, "sent_bytes_total", ""), cputime.Process()
			scope := a.scope(fleet[0], "Pod", "")
			sequence := metric(b, x, "sequence", "")
			r := rand.New(rand.NewPCG(2, 2))
			for n := range changes {
				rec := podRecord(r, n*19, 1+len(costs)+b.N)
				rec.Update = true
				scope.Upsert(scope.Item(rec))
			}
			if _, err := scope.Commit(); err != nil {
				b.Fatal(err)
			}
			a.tell()
			eventually(b, func() string {
				if metric(b, x, "sequence", "") <= sequence {
					return "nothing has changed"
				}
				return ""
			})
			reached()
			got.told, got.toldCPU = metric(b, x, "sent_bytes_total", "")-sent, float64((cputime.Process() - cpu).Microseconds())
			costs[c.name] = got
			end()
		}
	}
	all := costs["everything"]
	for name, c := range costs {
		b.Logf("%s: heap %.1f MB (%.1f %%), state %.0f KB (%.1f %%), %.0f ms of CPU (%.0f %%); 1,000 changes %.1f KB (%.1f %%), %.1f ms of CPU (%.0f %%)", name,
			c.heap/1e6, 100*c.heap/all.heap, c.sent/1e3, 100*c.sent/all.sent, c.cpu/1e3, 100*c.cpu/all.cpu,
			c.told/1e3, 100*c.told/all.told, c.toldCPU/1e3, 100*c.toldCPU/all.toldCPU)
	}
	one := costs["1 %"]
	b.ReportMetric(100*one.heap/all.heap, "%heap")
	b.ReportMetric(100*one.sent/all.sent, "%bytes")
	b.ReportMetric(100*one.cpu/all.cpu, "%cpu")
}

// BenchmarkGrowth is an importer of 1 % of 1,000,000 pods that asks for 1,000 more, until they are held.
func BenchmarkGrowth(b *testing.B) {
	const pods = 1_000_000
	a, fleet := judging(b, pods)
	x := a.exporter.Load()
	set := share(b, pods, 100, 0)
	i, end := startImporting(b, exchange.ImporterOptions{}, func(i *importing) { i.SetInterest(set) }, a)
	defer end()
	i.fleet(fleet...)
	wait := func() {
		for {
			held, changed := i.Held()
			if held.Equal(set) && i.Complete(fleet[0]) && i.Complete(fleet[len(fleet)-2]) {
				return
			}
			select {
			case <-changed:
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	wait()
	n, sent, cpu := 0, metric(b, x, "sent_bytes_total", ""), cputime.Process()
	for b.Loop() {
		n++
		set = set.With(share(b, pods, 1000, n))
		i.SetInterest(set)
		wait()
	}
	b.ReportMetric(float64((cputime.Process()-cpu).Microseconds())/1000/float64(n), "cpu-ms/growth")
	b.ReportMetric((metric(b, x, "sent_bytes_total", "")-sent)/1000/float64(n), "B/key")
}
