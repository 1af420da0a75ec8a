package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
)

// agentThroughput compares a list, and what a watch brings at first, by an agent and by the API server itself.
func agentThroughput(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.startAgent(ctx, kube.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	pods := b.n(10_000)
	if err := kube.BulkPods(ctx, r.fleet.Members[0], pods, kube.BulkOptions{Direct: true}); err != nil {
		return nil, err
	}
	direct, err := specOf(r.configOf())
	if err != nil {
		return nil, err
	}
	var lists, watches [2][]float64 // directly, by the agent
	for range 9 {
		for i, spec := range []clusterinformers.Spec{direct, r.spec} {
			took, err := r.list(ctx, spec.Agent)
			if err != nil {
				return nil, err
			}
			lists[i] = append(lists[i], float64(pods)/took.Seconds())
			if took, err = r.sync(ctx, spec, pods); err != nil {
				return nil, err
			}
			watches[i] = append(watches[i], float64(pods)/took.Seconds())
		}
	}
	const note = "%d pods, the best of 9 with all processes on this machine; goal 0.9"
	return []row{
		higher("agent/throughput_list", "objects/s", slices.Max(lists[1]), slices.Max(lists[0]), fmt.Sprintf("a list of "+note, pods)),
		higher("agent/throughput", "objects/s", slices.Max(watches[1]), slices.Max(watches[0]), fmt.Sprintf("until federator holds by a watch "+note, pods)),
	}, nil
}

// list reads a list of all pods, and nothing else.
func (r *agentRig) list(ctx context.Context, byAgent bool) (time.Duration, error) {
	config := r.configOf()
	var trip http.RoundTripper
	host := config.Host
	if byAgent {
		link, err := r.server.DialAgent(ctx, r.spec.Name, r.spec.UID)
		if err != nil {
			return 0, err
		}
		defer link.Close()
		if trip, err = (&http2.Transport{MaxReadFrameSize: 16 << 10}).NewClientConn(link); err != nil {
			return 0, err
		}
		host = "https://agent"
	} else {
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return 0, err
		}
		defer client.CloseIdleConnections()
		trip = client.Transport
	}
	started := time.Now()
	body, err := openWatch(ctx, trip, host+"/api/v1/pods?resourceVersion=0", runtime.ContentTypeProtobuf)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	from := io.Reader(body)
	if byAgent {
		d, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return 0, err
		}
		defer d.Close()
		from = d
	}
	_, err = io.Copy(io.Discard, from)
	return time.Since(started), err
}

// sync follows a member until all pods are held.
func (r *agentRig) sync(ctx context.Context, spec clusterinformers.Spec, pods int) (time.Duration, error) {
	started := time.Now()
	f, err := followAs(ctx, followOptions{agents: r.server}, contexts{spec}, "Pod")
	if err != nil {
		return 0, err
	}
	defer f.stop()
	err = f.synced(ctx, pods)
	return time.Since(started), err
}
