package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
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
	return []row{lower("index/bytes_per_pod", "B", ours["heap"], theirs["heap"], note)}, nil
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
	return figures{"heap": (after - before) / float64(pods), "body": float64(bytes) / float64(pods)}, nil
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
	status, err := memoryStatus()
	if err != nil {
		return nil, err
	}
	out["peak"] = status["VmHWM"]
	// At rest the collector runs every two minutes and the scavenger gives
	// memory back; both are hurried here.
	out["heap"] = heap()
	debug.FreeOSMemory()
	if status, err = memoryStatus(); err != nil {
		return nil, err
	}
	out["rss"] = status["VmRSS"]
	return out, nil
}
