package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/policies"
)

const (
	deltaRate = 2000 // per second
	chartGC   = 200  // GOGC, as the chart has it
)

// deltaLatency commits single changes and measures when their verdicts are published.
func deltaLatency(ctx context.Context, b *bench) ([]row, error) {
	objects := b.n(100_000)
	var got figures
	if err := os.Setenv("BENCH_SECONDS", strconv.Itoa(int(b.soak.Seconds()))); err != nil {
		return nil, err
	}
	if err := b.child(ctx, "policy-delta", &got, b.corpus, strconv.Itoa(objects)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%.0f deltas/s for %.0f s on %d objects, %.0f policies of the library; p50 %.2f ms, the commit alone p50 %.3f, GOGC=%d", got["rate"], got["seconds"], objects, got["policies"], got["p50"], got["bare-p50"], chartGC)
	return []row{
		lower("policy/delta_p99", "ms", got["p99"], got["bare-p99"], note+", the ratio is to the commit's p99; goal under 20"),
		{Name: "policy/delta_cpu", Unit: "µs", Value: got["cpu"], Note: fmt.Sprintf("CPU of a delta, encoding and commit included; %.0f without the engine; %.2f evaluations a delta, %.2f spared", got["bare-cpu"], got["evaluations"], got["unchanged"])},
		{Name: "policy/delta_late", Unit: "ms p99", Value: got["late"], Note: "how late the writer began a commit: what the machine was short of"},
		{Name: "policy/delta_heap", Unit: "MiB", Value: got["heap-end"] / mib, Baseline: got["heap-quarter"] / mib, Note: fmt.Sprintf("live at the end; baseline after a quarter of the run; %.0f before it", got["heap-start"]/mib)},
	}, nil
}

// shippedTwenty are twenty policies of the library, with what they are by default.
func shippedTwenty() (*policy.Set, []policy.Binding, error) {
	src, err := policy.ReadSource("library", policies.FS)
	if err != nil {
		return nil, nil, err
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		return nil, nil, err
	}
	all, _ := policy.DefaultBindings(set, nil)
	// Those about Pods, Deployments and Ingresses first: the others have less to do.
	slices.SortStableFunc(all, func(x, y policy.Binding) int { return busy(set, y) - busy(set, x) })
	all = all[:min(len(all), 20)]
	kinds := false
	for _, b := range all {
		p := set.Package(b.Package)
		kinds = kinds || len(p.Reads.ByName) > 0
	}
	if !kinds || len(all) < 20 {
		return nil, nil, fmt.Errorf("the library has %d policies, by_name is read: %v", len(all), kinds)
	}
	return set, all, nil
}

func busy(set *policy.Set, b policy.Binding) int {
	for _, k := range set.Package(b.Package).Kinds {
		if appVersions[k.Kind] != "" {
			return 1
		}
	}
	return 0
}

// commits are those that were made, in order.
type commits struct {
	mu      sync.Mutex
	waiting []commit
}

type commit struct {
	at       time.Time // it began
	revision aggregate.Revision
}

func (c *commits) add(x commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, x)
}

// until takes out those up to a revision and says how long they have waited.
func (c *commits) until(r aggregate.Revision, now time.Time, into []time.Duration) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.waiting) && c.waiting[n].revision <= r {
		into = append(into, now.Sub(c.waiting[n].at))
		n++
	}
	c.waiting = slices.Delete(c.waiting, 0, n)
	return into
}

// write commits single changes at the rate for so many seconds. Each second has as
// many: half are statuses of Pods, the rest new images, of Pods and of Deployments, and
// hosts of Ingresses.
func (s *appSet) write(ctx context.Context, seconds int, random *rand.Rand, made *commits, quarter func()) (bare, late []time.Duration, err error) {
	n := seconds * deltaRate
	bare, late = make([]time.Duration, 0, n), make([]time.Duration, 0, n)
	ticks, err := newTicks(time.Second / deltaRate)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, ticks.close()) }()
	started := time.Now()
	for i := range n {
		due := started.Add(time.Duration(i+1) * time.Second / deltaRate)
		if err := ticks.wait(); err != nil {
			return nil, nil, err
		}
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		kind, status := pod, i%2 == 0
		switch i % 20 {
		case 1, 3, 5:
			kind = deployment
		case 7:
			kind = ingress
		}
		m := random.IntN(appMembers)
		item := s.item(kind, m, random.IntN(s.counts[kind]), i+1, status)
		scope := s.scopes[kind][m]
		at := time.Now()
		scope.Upsert(item)
		revision, err := scope.Commit()
		if err != nil {
			return nil, nil, err
		}
		bare, late = append(bare, time.Since(at)), append(late, at.Sub(due))
		if made != nil {
			made.add(commit{at, revision})
		}
		if i == n/4 && quarter != nil {
			quarter()
		}
	}
	return bare, late, nil
}

func policyDelta(ctx context.Context, corpus string, objects int) (figures, error) {
	seconds, err := strconv.Atoi(os.Getenv("BENCH_SECONDS"))
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(chartGC)
	set, bindings, err := shippedTwenty()
	if err != nil {
		return nil, err
	}
	s, err := newAppSet(ctx, corpus, objects, mixed, kindsOf(set))
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 1)) // the same objects in every run
	out := figures{"policies": float64(len(bindings)), "seconds": float64(seconds)}
	n := float64(seconds * deltaRate)
	cpu := cpuTime()
	bare, _, err := s.write(ctx, max(seconds/4, 2), random, nil, nil)
	if err != nil {
		return nil, err
	}
	out["bare-p50"], out["bare-p99"] = ms(bare, 0.5), ms(bare, 0.99)
	out["bare-cpu"] = float64((cpuTime() - cpu).Microseconds()) / float64(len(bare))
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings})
	if err != nil {
		return nil, err
	}
	return out, running(ctx, e, func(ctx context.Context) error {
		at := s.index.Snapshot()
		if err := reset(ctx, at, e); err != nil {
			return err
		}
		before := e.Stats()
		f := &followed{engine: e, cursor: s.index.Cursor(at), made: &commits{}, waits: make([]time.Duration, 0, seconds*deltaRate)}
		out["heap-start"] = heap()
		cpu := cpuTime()
		late, err := f.follow(ctx, s, seconds, random, out)
		if err != nil {
			return err
		}
		after := e.Stats()
		out["cpu"] = float64((cpuTime() - cpu).Microseconds()) / n
		out["heap-end"] = liveHeap()
		out["p50"], out["p99"], out["late"] = ms(f.waits, 0.5), ms(f.waits, 0.99), ms(late, 0.99)
		out["evaluations"] = float64(after.Evaluations-before.Evaluations) / n
		out["unchanged"] = float64(after.Unchanged-before.Unchanged) / n
		for _, b := range bindings {
			if h, _ := e.State().Health(b.Name); len(h.Quarantines) > 0 {
				return fmt.Errorf("%s is quarantined: %+v", b.Name, h)
			}
		}
		return nil
	})
}

// liveHeap is what the last collection left alive.
func liveHeap() float64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64())
}

// followed is an engine that applies what is committed.
type followed struct {
	engine *policy.Engine
	cursor *aggregate.Cursor
	made   *commits
	waits  []time.Duration // from the commit to the State
}

func (f *followed) follow(ctx context.Context, s *appSet, seconds int, random *rand.Rand, out figures) ([]time.Duration, error) {
	var late []time.Duration
	var failed error
	writing, stop := context.WithCancel(ctx)
	var writer sync.WaitGroup
	defer writer.Wait()
	started := time.Now()
	last := make(chan aggregate.Revision, 1)
	writer.Go(func() {
		defer stop()
		_, late, failed = s.write(writing, seconds, random, f.made, func() { out["heap-quarter"] = liveHeap() })
		out["rate"] = float64(seconds*deltaRate) / time.Since(started).Seconds()
		last <- s.index.Snapshot().Revision()
	})
	for {
		batch, err := f.cursor.Next(writing)
		if err != nil {
			break
		}
		if err := f.apply(ctx, batch); err != nil {
			stop()
			return nil, err
		}
	}
	writer.Wait()
	if failed != nil {
		return nil, failed
	}
	if batch, ok := f.cursor.Poll(); ok {
		if err := f.apply(ctx, batch); err != nil {
			return nil, err
		}
	}
	if r := <-last; f.engine.State().Snapshot.Revision() != r || len(f.waits) != seconds*deltaRate {
		return nil, fmt.Errorf("%d of %d deltas have verdicts", len(f.waits), seconds*deltaRate)
	}
	return late, nil
}

func (f *followed) apply(ctx context.Context, batch *aggregate.Batch) error {
	if _, err := f.engine.Apply(ctx, batch, nil); err != nil {
		return err
	}
	f.waits = f.made.until(f.engine.State().Snapshot.Revision(), time.Now(), f.waits)
	return nil
}
