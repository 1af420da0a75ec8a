package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
)

// latency measures from the moment that the API server has answered a write to
// the moment that the write can be read: in a snapshot, and in a bare loop
// over a watch.
func latency(ctx context.Context, b *bench) (rows []row, err error) {
	fleet, err := kube.Start(ctx, kube.Options{Members: 1, NoHub: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fleet.Stop()) }()
	member := fleet.Members[0]
	if err := kube.BulkPods(ctx, member, b.n(2_000), kube.BulkOptions{Direct: true, Namespaces: 1}); err != nil {
		return nil, err
	}
	for _, load := range []struct {
		name   string
		rate   int
		writes int
	}{{"idle", 20, 400}, {"500w", 500, 5000}} {
		started := time.Now()
		ours, bare, err := measureLatency(ctx, member, load.rate, b.n(load.writes))
		if err != nil {
			return rows, err
		}
		note := fmt.Sprintf("%d writes, %d/s asked for, over in %.0f s; p50 %.2f ms, bare %.2f; goal 1.3x", len(ours), load.rate, time.Since(started).Seconds(), ms(ours, 0.5), ms(bare, 0.5))
		if load.name == "idle" {
			note += ", under 5 ms"
		}
		rows = append(rows, lower("ingest/latency_p99_"+load.name, "ms", ms(ours, 0.99), ms(bare, 0.99), note))
	}
	return rows, nil
}

func ms(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return float64(d[min(int(q*float64(len(d))), len(d)-1)]) / float64(time.Millisecond)
}

// arrivals notes when each resourceVersion was first seen.
type arrivals struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (a *arrivals) note(rv string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, seen := a.at[rv]; !seen {
		a.at[rv] = now
	}
}

// since returns how long after the answers the versions were seen, and how
// many were not.
func (a *arrivals) since(answered map[string]time.Time) (out []time.Duration, missing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for rv, t := range answered {
		if at, seen := a.at[rv]; seen {
			out = append(out, max(at.Sub(t), 0))
		} else {
			missing++
		}
	}
	return out, missing
}

func measureLatency(ctx context.Context, member *kube.ControlPlane, perSecond, writes int) (ours, bare []time.Duration, err error) {
	config := member.DirectRESTConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	spec, err := specOf(config)
	if err != nil {
		return nil, nil, err
	}
	f, err := follow(ctx, contexts{spec}, "Pod")
	if err != nil {
		return nil, nil, err
	}
	defer f.stop()
	if err := f.synced(ctx, len(list.Items)); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	inIndex, inLoop := &arrivals{at: map[string]time.Time{}}, &arrivals{at: map[string]time.Time{}}
	wg.Go(func() { watchIndex(ctx, f.index, inIndex) })
	wg.Go(func() {
		if err := watchBare(ctx, config, list.ResourceVersion, inLoop); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "bench: bare watch:", err)
		}
	})
	answered, err := writePods(ctx, client, list.Items[0].Namespace, names(list.Items), perSecond, writes)
	if err != nil {
		return nil, nil, err
	}
	err = poll(ctx, 10*time.Second, func() bool {
		_, a := inIndex.since(answered)
		_, b := inLoop.since(answered)
		return a == 0 && b == 0
	})
	ours, lost := inIndex.since(answered)
	bare, lostBare := inLoop.since(answered)
	if err != nil {
		return nil, nil, fmt.Errorf("%d of %d writes were not seen, %d by the bare loop: %w", lost, len(answered), lostBare, err)
	}
	return ours, bare, nil
}

// watchIndex notes each change as soon as a snapshot has it.
func watchIndex(ctx context.Context, index *aggregate.Index, seen *arrivals) {
	last := index.Snapshot()
	for {
		select {
		case <-index.Newer(last):
		case <-ctx.Done():
			return
		}
		now := time.Now()
		next := index.Snapshot()
		changes, err := index.Changes(last.Revision())
		if err != nil {
			return
		}
		for c := range changes {
			if !c.After.IsZero() {
				seen.note(c.After.ResourceVersion(), now)
			}
		}
		last = next
	}
}

// watchBare notes each change as soon as a bare watch loop over typed protobuf
// has it. A server under load ends the watch of a client that it finds slow;
// the loop goes on where it was.
func watchBare(ctx context.Context, config *rest.Config, rv string, seen *arrivals) error {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		w, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: rv})
		if err != nil {
			return err
		}
		for event := range w.ResultChan() {
			now := time.Now()
			if pod, ok := event.Object.(*corev1.Pod); ok {
				rv = pod.ResourceVersion
				seen.note(rv, now)
			}
		}
		w.Stop()
	}
	return nil
}

// writePods patches pods at a steady rate, whatever the answers take, and returns
// when each new version had been answered.
func writePods(ctx context.Context, client kubernetes.Interface, namespace string, names []string, perSecond, writes int) (map[string]time.Time, error) {
	answered := map[string]time.Time{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	inFlight := make(chan struct{}, 64) // a server that takes less than the rate is not buried
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range writes {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		inFlight <- struct{}{}
		wg.Go(func() {
			defer func() { <-inFlight }()
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench/write":"%d-%d"}}}`, perSecond, i)
			pod, err := client.CoreV1().Pods(namespace).Patch(ctx, names[i%len(names)], types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			now := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			answered[pod.ResourceVersion] = now
		})
	}
	wg.Wait()
	return answered, failed
}

func names(pods []corev1.Pod) []string {
	out := make([]string, len(pods))
	for i := range pods {
		out[i] = pods[i].Name
	}
	return out
}
