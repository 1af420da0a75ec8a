package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/test/kube"
)

// agentRSS measures what an agent has resident with many watches, all of which are busy in turn.
func agentRSS(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.startAgent(ctx, kube.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	first, _, err := memory(r.pid)
	if err != nil {
		return nil, err
	}
	link, err := r.server.DialAgent(ctx, r.spec.Name, r.spec.UID)
	if err != nil {
		return nil, err
	}
	defer link.Close()
	agent, err := (&http2.Transport{}).NewClientConn(link)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(r.configOf())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var came atomic.Int64
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	watches := b.n(500)
	if err := createNamespaces(ctx, client, watches); err != nil {
		return nil, err
	}
	for i := range watches {
		path := fmt.Sprintf("https://agent/api/v1/namespaces/bench-%d/configmaps?watch=1&allowWatchBookmarks=1", i)
		body, err := openWatch(ctx, agent, path, runtime.ContentTypeProtobuf)
		if err != nil {
			return nil, err
		}
		readers.Go(func() { _, _ = io.Copy(writes{&came}, body) }) //nolint:errcheck // it ends with the context
		readers.Go(func() { <-ctx.Done(); body.Close() })
	}
	quiet, _, err := memory(r.pid)
	if err != nil {
		return nil, err
	}
	const rounds = 3
	most, files := 0.0, 0.0
	for n := range rounds {
		if err := touchAll(ctx, client, watches, n); err != nil {
			return nil, err
		}
		now, of, err := memory(r.pid)
		if err != nil {
			return nil, err
		}
		most, files = max(most, now), max(files, of)
	}
	if err := poll(ctx, time.Minute, func() bool { return came.Load() >= int64(watches*rounds) }); err != nil {
		return nil, fmt.Errorf("%d of %d events have come: %w", came.Load(), watches*rounds, err)
	}
	note := fmt.Sprintf("anonymous, with %d watches that are busy in turn; %.0f MB before there are any, %.0f MB while they are quiet; %.0f MB more are of the command's file; goal 60",
		watches, first/1e6, quiet/1e6, files/1e6)
	return []row{lower("agent/rss", "MB", most/1e6, 0, note)}, nil
}

// writes counts what is written at a time.
type writes struct{ n *atomic.Int64 }

func (w writes) Write(p []byte) (int, error) {
	w.n.Add(1)
	return len(p), nil
}

// each calls f for many numbers, a few at a time.
func each(ctx context.Context, n int, f func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

func createNamespaces(ctx context.Context, client kubernetes.Interface, n int) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", i)}}, metav1.CreateOptions{})
		return err
	})
}

// touchAll creates a ConfigMap of 4 KB in each namespace, and changes it after.
func touchAll(ctx context.Context, client kubernetes.Interface, n, round int) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		maps := client.CoreV1().ConfigMaps(fmt.Sprintf("bench-%d", i))
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"round": fmt.Sprint(round), "text": strings.Repeat("a setting and its value\n", 170)}}
		if round == 0 {
			_, err := maps.Create(ctx, m, metav1.CreateOptions{})
			return err
		}
		_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
		return err
	})
}
