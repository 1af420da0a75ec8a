package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// bytesPerPod compares the heap per pod held and indexed with that of a stock
// dynamic informer.
func bytesPerPod(ctx context.Context, b *bench) (rows []row, err error) {
	pods := b.n(100_000)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", "1", "--pods", strconv.Itoa(pods), "--nodes", "500")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var ours, theirs figures
	if err := b.child(ctx, "heap-federator", &ours, kubeconfig, strconv.Itoa(pods)); err != nil {
		return nil, err
	}
	// A stock informer needs some 50 kB a pod; a tenth of the pods shows it.
	few := max(pods/10, 1)
	kubeconfig, stopFew, err := b.simfleet(ctx, "--members", "1", "--pods", strconv.Itoa(few), "--nodes", "500")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopFew()) }()
	if err := b.child(ctx, "heap-stock", &theirs, kubeconfig, strconv.Itoa(few)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d pods, bodies %.0f B each; stock with %d; goal 1/40 and 1,200", pods, ours["body"], few)
	var attacked figures
	if err := b.child(ctx, "heap-attacked", &attacked, "", strconv.Itoa(b.n(50_000))); err != nil {
		return nil, err
	}
	return []row{
		lower("index/bytes_per_pod", "B", ours["heap"], theirs["heap"], note),
		{Name: "index/accounted_ratio", Unit: "x", Value: ours["ratio"], Note: "live heap by what is accounted; goal 1.5"},
		{Name: "index/accounted_ratio labels", Unit: "x", Value: attacked["labels"], Note: "objects with ten labels of their own each; goal 1.5"},
		{Name: "index/accounted_ratio churn", Unit: "x", Value: attacked["churn"], Note: "whose labels and owners all changed since, with the change log full; goal 1.5"},
	}, nil
}

// heapAttacked compares the live heap of an index with what it accounts for, for objects
// that share nothing.
func heapAttacked(_ context.Context, _ string, objects int) (figures, error) {
	before := heap()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, err
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		return nil, err
	}
	scope, err := index.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		return nil, err
	}
	out := figures{}
	for version, name := range []string{"labels", "churn"} {
		for i := range objects {
			rec := &aggregate.Record{
				Namespace: fmt.Sprint("ns-", i%100), Name: fmt.Sprint("pod-", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i),
				ResourceVersion: strconv.Itoa(version*objects + i + 1), Update: true,
				Owners: []aggregate.Owner{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprint(version, "-", i), UID: fmt.Sprint("uid-", version, "-", i)}},
				Body:   fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-%d"}}`, i),
			}
			for l := range 10 {
				rec.Labels = append(rec.Labels, aggregate.Label{Key: fmt.Sprint("example.org/label-", l), Value: fmt.Sprint("value-", version, "-", i)})
			}
			if scope.Upsert(scope.Item(rec)); i%100 == 99 || i == objects-1 {
				if _, err := scope.Commit(); err != nil {
					return nil, err
				}
			}
		}
		out[name] = (heap() - before) / float64(index.Account().Total())
	}
	scope.Close()
	runtime.KeepAlive(index)
	return out, nil
}

// heap returns the live heap after collecting what is garbage, and what only
// finalisers and weak pointers kept.
func heap() float64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func heapFederator(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	before := heap()
	f, err := follow(ctx, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	after := heap()
	var bytes int64
	for s := range f.index.Snapshot().Scopes("") {
		bytes += s.Bytes
	}
	return figures{"heap": (after - before) / float64(pods), "body": float64(bytes) / float64(pods), "ratio": (after - before) / float64(f.index.Account().Total())}, nil
}

func heapStock(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	before := heap()
	s, err := startStock(ctx, config, nil)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := s.synced(ctx, pods); err != nil {
		return nil, err
	}
	return figures{"heap": (heap() - before) / float64(pods)}, nil
}

// gcPercent is the collector's setting for a process that holds a large fleet.
const gcPercent = 50

// largeFleet measures what a process needs to hold 3,200 nodes and 470,000
// pods of 20 members.
func largeFleet(ctx context.Context, b *bench) (rows []row, err error) {
	members, pods, nodes := 20, b.n(23_500), b.n(160)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", strconv.Itoa(nodes))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var got figures
	if err := b.child(ctx, "rss", &got, kubeconfig, strconv.Itoa(members*pods)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d pods + %d nodes, %d members, GOGC=%d; synced in %.1f s with %.1f CPU-s; goal 1,024", members*pods, members*nodes, members, gcPercent, got["seconds"], got["cpu"])
	return []row{
		{Name: "index/large_fleet_rss", Unit: "MiB", Value: got["rss"] / mib, Note: note},
		{Name: "index/large_fleet_rss_peak", Unit: "MiB", Value: got["peak"] / mib, Note: "during sync and training"},
		{Name: "index/large_fleet_heap", Unit: "MiB", Value: got["heap"] / mib, Note: "live"},
	}, nil
}

const mib = 1 << 20

func rss(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	debug.SetGCPercent(gcPercent)
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	started, cpu := time.Now(), cpuTime()
	f, err := follow(ctx, members, "Pod", "Node")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := f.synced(ctx, pods); err != nil {
		return nil, err
	}
	out := figures{"seconds": time.Since(started).Seconds(), "cpu": (cpuTime() - cpu).Seconds()}
	if err := f.trained(ctx); err != nil {
		return nil, err
	}
	status, err := memoryStatus("/proc/self")
	if err != nil {
		return nil, err
	}
	out["peak"] = status["VmHWM"]
	// At rest the collector runs every two minutes and the scavenger gives
	// memory back; both are hurried here.
	out["heap"] = heap()
	debug.FreeOSMemory()
	if status, err = memoryStatus("/proc/self"); err != nil {
		return nil, err
	}
	out["rss"] = status["VmRSS"]
	return out, nil
}
