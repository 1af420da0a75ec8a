package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/test/kube"
)

// wanPaths are what is watched by wanRatio: what changes when applications are rolled out, and what else there is much of.
var wanPaths = []string{
	"/api/v1/pods", "/api/v1/nodes", "/api/v1/configmaps", "/api/v1/services", "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets",
	"/apis/apps/v1/statefulsets", "/apis/apps/v1/daemonsets", "/apis/batch/v1/jobs", "/apis/discovery.k8s.io/v1/endpointslices",
}

// wanRatio measures what of watches goes over the link while the applications of a member with controllers are rolled out
// again and again, beside what the API server sends.
func wanRatio(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.startAgent(ctx, kube.Options{Controllers: true, Nodes: 5})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := kube.Workloads(ctx, r.fleet.Members[0], 6); err != nil {
		return nil, err
	}
	for _, t := range []struct{ name, accept string }{
		{"agent/wan_ratio", runtime.ContentTypeProtobuf}, {"agent/wan_ratio_json", runtime.ContentTypeJSON},
	} {
		got, err := b.recordWatches(ctx, r, t.accept)
		if err != nil {
			return rows, err
		}
		rows = append(rows, got.rows(t.name)...)
	}
	return rows, nil
}

// recording is what has come of watches.
type recording struct {
	mu                 sync.Mutex
	plain, gzip, alone int64   // bytes as the API server sends them, by gzip for each flush, and by zstd for each
	decoded, body      int64   // bytes of the agent, decoded and not
	flushes            int     // of the API server
	link               int64   // bytes of the agent with TLS and HTTP/2
	cpu                float64 // seconds of the agent
}

func (g *recording) rows(name string) []row {
	of := func(n int64) float64 { return float64(g.plain) / float64(max(n, 1)) }
	note := fmt.Sprintf("%d flushes, %d KB; beside gzip for each flush; zstd for each without a window that lasts %.2f; with TLS and HTTP/2 %.2f; agent %.0f µs of CPU a flush; goal 4.7",
		g.flushes, g.plain>>10, of(g.alone), of(g.link), g.cpu*1e6/float64(max(g.flushes, 1)))
	return []row{higher(name, "", float64(g.decoded)/float64(max(g.body, 1)), of(g.gzip), note)}
}

// recordWatches watches by the agent, and the API server itself, while applications are rolled out.
func (b *bench) recordWatches(ctx context.Context, r *agentRig, accept string) (*recording, error) {
	ctx, cancel := context.WithCancel(ctx)
	g := &recording{}
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	if err := g.open(ctx, r, accept, &readers); err != nil {
		return nil, err
	}
	if err := b.settle(ctx, g); err != nil {
		return nil, err
	}
	g.restart()
	before, _ := r.received()
	cpu, err := cpuOf(r.pid)
	if err != nil {
		return nil, err
	}
	if err := rollOut(ctx, r.fleet.Members[0].Client(), b.n(8)); err != nil {
		return nil, err
	}
	if err := b.settle(ctx, g); err != nil {
		return nil, err
	}
	after, _ := r.received()
	now, err := cpuOf(r.pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	return &recording{
		plain: g.plain, gzip: g.gzip, alone: g.alone, decoded: g.decoded, body: g.body, flushes: g.flushes,
		link: after - before, cpu: now - cpu,
	}, err
}

// open opens all watches, which are read until ctx is done.
func (g *recording) open(ctx context.Context, r *agentRig, accept string, readers *sync.WaitGroup) error {
	link, err := r.server.DialAgent(ctx, r.spec.Name, r.spec.UID)
	if err != nil {
		return err
	}
	readers.Go(func() { <-ctx.Done(); link.Close() })
	agent, err := (&http2.Transport{}).NewClientConn(link)
	if err != nil {
		return err
	}
	direct, err := rest.HTTPClientFor(r.configOf())
	if err != nil {
		return err
	}
	readers.Go(func() { <-ctx.Done(); direct.CloseIdleConnections() })
	for _, path := range wanPaths {
		for _, from := range []struct {
			trip http.RoundTripper
			host string
			read func(*recording, io.Reader)
		}{
			{agent, "https://agent", (*recording).ofAgent}, {direct.Transport, r.configOf().Host, (*recording).ofServer},
		} {
			body, err := openWatch(ctx, from.trip, from.host+path+"?watch=1&allowWatchBookmarks=1&resourceVersion=0", accept)
			if err != nil {
				return err
			}
			readers.Go(func() { from.read(g, body) })
			readers.Go(func() { <-ctx.Done(); body.Close() })
		}
	}
	return nil
}

func openWatch(ctx context.Context, trip http.RoundTripper, url, accept string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", "zstd") // of which an API server knows nothing
	resp, err := trip.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", url, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// settle waits until nothing has come for a while.
func (b *bench) settle(ctx context.Context, g *recording) error {
	last, since := -1, time.Now()
	return poll(ctx, 5*time.Minute, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.flushes != last {
			last, since = g.flushes, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

func (g *recording) restart() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plain, g.gzip, g.alone, g.body, g.decoded, g.flushes = 0, 0, 0, 0, 0, 0
}

// ofAgent reads what the agent sends.
func (g *recording) ofAgent(body io.Reader) {
	in := &counted{Reader: body}
	d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return
	}
	defer d.Close()
	p, last := make([]byte, 256<<10), int64(0)
	for {
		n, err := d.Read(p)
		g.mu.Lock()
		g.decoded += int64(n)
		g.body += in.n - last
		g.mu.Unlock()
		if last = in.n; err != nil {
			return
		}
	}
}

// ofServer reads what the API server sends, and compresses it in other ways.
func (g *recording) ofServer(body io.Reader) {
	alone, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return
	}
	defer alone.Close()
	var out bytes.Buffer
	p := make([]byte, 256<<10)
	for {
		n, err := body.Read(p)
		if n > 0 {
			out.Reset()
			z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) //nolint:errcheck // the level is one
			_, _ = z.Write(p[:n])                             //nolint:errcheck // into memory
			_ = z.Close()                                     //nolint:errcheck // as above
			single := alone.EncodeAll(p[:n], nil)
			g.mu.Lock()
			g.plain += int64(n)
			g.gzip += int64(out.Len())
			g.alone += int64(len(single))
			g.flushes++
			g.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// rollOut replaces all applications of a member so many times.
func rollOut(ctx context.Context, client kubernetes.Interface, times int) error {
	for n := range times {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"rollout":"%d-%d"}}}}}`, time.Now().UnixNano(), n)
		deployments, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range deployments.Items {
			d := &deployments.Items[i]
			if _, err := client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		sets, err := client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range sets.Items {
			s := &sets.Items[i]
			if _, err := client.AppsV1().StatefulSets(s.Namespace).Patch(ctx, s.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		select {
		case <-time.After(5 * time.Second): // as long as one takes
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
