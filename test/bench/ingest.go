package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/test/kube"
)

// pair of a wall time and a CPU time, as figures.
func timed(started time.Time, cpu time.Duration) figures {
	return figures{"seconds": time.Since(started).Seconds(), "cpu": (cpuTime() - cpu).Seconds()}
}

func syncFederator(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	started, cpu := time.Now(), cpuTime()
	f, err := follow(ctx, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := f.synced(ctx, pods); err != nil {
		return nil, err
	}
	return timed(started, cpu), nil
}

func syncStock(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	started, cpu := time.Now(), cpuTime()
	s, err := startStock(ctx, config, nil)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := s.synced(ctx, pods); err != nil {
		return nil, err
	}
	return timed(started, cpu), nil
}

func syncTyped(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	return syncInformer(ctx, kubeconfig, runtime.ContentTypeProtobuf, pods)
}

func syncTypedJSON(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	return syncInformer(ctx, kubeconfig, runtime.ContentTypeJSON, pods)
}

func syncInformer(ctx context.Context, kubeconfig, contentType string, pods int) (figures, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType, config.QPS = contentType, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started, cpu := time.Now(), cpuTime()
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	err = poll(ctx, 10*time.Minute, func() bool { return informer.HasSynced() && len(informer.GetStore().ListKeys()) >= pods })
	out := timed(started, cpu)
	cancel()
	factory.Shutdown()
	return out, err
}

// syncRatio compares the time to Synced from a real API server.
func syncRatio(ctx context.Context, b *bench) (rows []row, err error) {
	pods := b.n(20_000)
	fleet, err := kube.Start(ctx, kube.Options{Members: 1, NoHub: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	member := fleet.Members[0]
	if err := kube.BulkPods(ctx, member, pods, kube.BulkOptions{Direct: true}); err != nil {
		return nil, err
	}
	direct, err := kubeconfigOf(member.DirectRESTConfig())
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(b.dir, "member.kubeconfig")
	if err := os.WriteFile(kubeconfig, direct, 0o600); err != nil {
		return nil, err
	}
	kinds := []string{"sync-federator", "sync-stock", "sync-typed", "curl"}
	runs := map[string][]float64{}
	cpus := map[string][]float64{}
	for range 3 {
		for _, kind := range kinds {
			got := figures{}
			if kind == "curl" {
				got, err = curl(ctx, kubeconfig)
			} else {
				err = b.child(ctx, kind, &got, kubeconfig, strconv.Itoa(pods))
			}
			if err != nil {
				return nil, err
			}
			runs[kind] = append(runs[kind], got["seconds"])
			cpus[kind] = append(cpus[kind], got["cpu"])
		}
	}
	rate := func(kind string) float64 { return float64(pods) / median(runs[kind]) }
	note := fmt.Sprintf("%d pods; client CPU %.2f s, stock %.2f s; goal 6x", pods, median(cpus["sync-federator"]), median(cpus["sync-stock"]))
	return []row{
		higher("ingest/sync_ratio", "objects/s", rate("sync-federator"), rate("sync-stock"), note),
		higher("ingest/sync_vs_typed", "objects/s", rate("sync-federator"), rate("sync-typed"), "a typed protobuf informer"),
		higher("ingest/sync_vs_curl", "objects/s", rate("sync-federator"), rate("curl"), "curl reading the same list as protobuf; goal within 2x: 0.5"),
	}, nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// curl reads the list of all pods as protobuf and throws it away.
func curl(ctx context.Context, kubeconfig string) (figures, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(kubeconfig)
	files := map[string][]byte{"ca.crt": config.CAData, "client.crt": config.CertData, "client.key": config.KeyData}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	cmd := exec.CommandContext(ctx, "curl", "-sSf", "-o", "/dev/null", "-H", "Accept: application/vnd.kubernetes.protobuf",
		"--cacert", filepath.Join(dir, "ca.crt"), "--cert", filepath.Join(dir, "client.crt"), "--key", filepath.Join(dir, "client.key"),
		config.Host+"/api/v1/pods?resourceVersion=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("curl: %w: %s", err, out)
	}
	return figures{"seconds": time.Since(started).Seconds(), "cpu": (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}, nil
}

// watchWindow is how long events are counted.
const watchWindow = 10 * time.Second

func watchFederator(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := follow(ctx, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	return window(ctx, func() float64 { return float64(f.index.Snapshot().Changes()) })
}

func watchStock(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	var seen atomic.Int64
	s, err := startStock(ctx, config, cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { seen.Add(1) }})
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := s.synced(ctx, pods); err != nil {
		return nil, err
	}
	return window(ctx, func() float64 { return float64(seen.Load()) })
}

func window(ctx context.Context, count func() float64) (figures, error) {
	events, cpu, started := count(), cpuTime(), time.Now()
	select {
	case <-time.After(watchWindow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return figures{"events": count() - events, "cpu": (cpuTime() - cpu).Seconds(), "seconds": time.Since(started).Seconds()}, nil
}

// watchEvents compares the events that a CPU-second of the client carries from
// HTTPS to where they can be read: at a rate that both can follow, and at one
// that is too much for a stock informer.
func watchEvents(ctx context.Context, b *bench) ([]row, error) {
	slow, err := b.watchRate(ctx, 700, "watch-federator", "watch-stock")
	if err != nil {
		return nil, err
	}
	fast, err := b.watchRate(ctx, 8000, "watch-federator")
	if err != nil {
		return nil, err
	}
	ours, stock := "watch-federator", "watch-stock"
	return []row{
		higher("ingest/watch_events", "events/CPU-s", fast[ours].perCPU, slow[stock].perCPU,
			fmt.Sprintf("status updates of pods at %.0f/s, the stock informer at %.0f/s; goal 10x", fast[ours].rate, slow[stock].rate)),
		higher("ingest/watch_events_slow", "events/CPU-s", slow[ours].perCPU, slow[stock].perCPU,
			fmt.Sprintf("both at %.0f/s: wake-ups cost as much as work", slow[ours].rate)),
	}, nil
}

type watchRate struct{ perCPU, rate float64 }

func (b *bench) watchRate(ctx context.Context, perSecond int, kinds ...string) (out map[string]watchRate, err error) {
	pods := b.n(2_000)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", "1", "--pods", strconv.Itoa(pods), "--nodes", "50", "--churn", strconv.Itoa(perSecond))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	perCPU, rate := map[string][]float64{}, map[string][]float64{}
	for range 3 {
		for _, kind := range kinds {
			var got figures
			if err := b.child(ctx, kind, &got, kubeconfig, strconv.Itoa(pods)); err != nil {
				return nil, err
			}
			perCPU[kind] = append(perCPU[kind], got["events"]/got["cpu"])
			rate[kind] = append(rate[kind], got["events"]/got["seconds"])
		}
	}
	out = map[string]watchRate{}
	for _, kind := range kinds {
		out[kind] = watchRate{median(perCPU[kind]), median(rate[kind])}
	}
	return out, nil
}
