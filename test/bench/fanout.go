package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
)

// onlyPods is a fleet whose members serve pods.
type onlyPods struct{ never chan struct{} }

func (f onlyPods) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	return []queryapi.ServedResource{{
		Kind: "Pod", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Singular: "pod", Namespaced: true,
	}}, f.never
}

func (f onlyPods) LastContact(string, aggregate.Kind) time.Time { return time.Now() }

const fanoutWatchers = 200

// watchFanout commits single changes, alone and with watchers of all pods, and
// measures the commits and how long until the last watcher has the event.
func watchFanout(ctx context.Context, b *bench) (rows []row, err error) {
	control, err := kube.Start(ctx, kube.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, control.Stop()) }()
	ca := filepath.Join(b.dir, "fanout-ca.pem")
	if err := errors.Join(os.WriteFile(ca, control.Hub.RESTConfig().CAData, 0o600), os.Setenv("BENCH_CA", ca)); err != nil {
		return nil, err
	}
	set, err := newPodSet(b.corpus, 20, b.n(5_000))
	if err != nil {
		return nil, err
	}
	index, scopes, err := set.fill(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	type place struct {
		host string
		ca   []byte
	}
	ready, failed := make(chan place, 1), make(chan error, 1)
	running.Go(func() {
		failed <- serveQueries(ctx, index, onlyPods{}, control.Hub.DirectRESTConfig(), func(host string, ca []byte) error {
			ready <- place{host, ca}
			return nil
		})
	})
	var at place
	select {
	case at = <-ready:
	case err := <-failed:
		return nil, err
	}
	cred, err := control.Hub.IssueCert("bench", time.Hour, "system:masters")
	if err != nil {
		return nil, err
	}
	config := &rest.Config{Host: at.host, TLSClientConfig: rest.TLSClientConfig{CAData: at.ca, CertData: cred.Cert, KeyData: cred.Key}}
	w := &fanout{scopes: scopes, set: set}
	alone, _, err := w.commit(ctx, b.n(2_000))
	if err != nil {
		return nil, err
	}
	w.between = coldly()
	cold, _, err := w.commit(ctx, b.n(2_000))
	if err != nil {
		return nil, err
	}
	w.between = nil
	for range fanoutWatchers {
		if err := w.watch(ctx, config, &running); err != nil {
			return nil, err
		}
	}
	with, last, err := w.commit(ctx, b.n(2_000))
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d watchers; p50 %.3f ms, alone %.3f, alone with cold caches %.3f; goal 1.1x", fanoutWatchers, ms(with, 0.5), ms(alone, 0.5), ms(cold, 0.5))
	return []row{
		lower("query/watch_commit_p99", "ms", ms(with, 0.99), ms(alone, 0.99), note),
		{Name: "query/watch_fanout", Unit: "ms p99", Value: ms(last, 0.99), Note: fmt.Sprintf("commit to the last of %d watchers, 200 commits/s; p50 %.1f ms", fanoutWatchers, ms(last, 0.5))},
	}, nil
}

type fanout struct {
	scopes   []*aggregate.Scope
	set      *podSet
	watchers int64
	received atomic.Int64 // events, by all watchers
	version  int
	between  func() // commits; nil for nothing
}

// coldly returns work on both processors that leaves nothing of a commit in their caches,
// as what serves and reads many watches does.
func coldly() func() {
	var touched [2][]byte
	for i := range touched {
		touched[i] = make([]byte, 8<<20)
	}
	return func() {
		var both sync.WaitGroup
		for _, bytes := range touched {
			both.Go(func() {
				for i := 0; i < len(bytes); i += 64 {
					bytes[i]++
				}
			})
		}
		both.Wait()
	}
}

// watch opens a watch from now on and counts its events.
func (w *fanout) watch(ctx context.Context, config *rest.Config, running *sync.WaitGroup) error {
	a, err := newAsker(config)
	if err != nil {
		return err
	}
	page, err := list(ctx, a, "/fleet/api/v1/pods?limit=1")
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.host+"/fleet/api/v1/pods?watch=1&resourceVersion="+page.Metadata.ResourceVersion, nil)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req) //nolint:bodyclose // by the reader
	if err != nil {
		return err
	}
	w.watchers++
	running.Go(func() {
		defer resp.Body.Close()
		for in := bufio.NewReaderSize(resp.Body, 64<<10); ; {
			_, more, err := in.ReadLine()
			if err != nil {
				return
			}
			if !more {
				w.received.Add(1)
			}
		}
	})
	return nil
}

// commit changes one pod 200 times a second, and waits for all watchers after
// each.
func (w *fanout) commit(ctx context.Context, times int) (commits, last []time.Duration, err error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var rec aggregate.Record
	for i := range times {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		w.version++
		m := i % len(w.scopes)
		w.set.record(&rec, m, i%w.set.perMember, 1_000_000+w.version)
		scope := w.scopes[m]
		want := w.received.Load() + w.watchers
		item := scope.Item(&rec)
		started := time.Now()
		scope.Upsert(item)
		if _, err := scope.Commit(); err != nil {
			return nil, nil, err
		}
		commits = append(commits, time.Since(started))
		if w.between != nil {
			w.between()
		}
		if w.watchers == 0 {
			continue
		}
		if err := poll(ctx, time.Minute, func() bool { return w.received.Load() >= want }); err != nil {
			return nil, nil, fmt.Errorf("%d of %d events arrived: %w", w.received.Load(), want, err)
		}
		last = append(last, time.Since(started))
	}
	return commits, last, nil
}
