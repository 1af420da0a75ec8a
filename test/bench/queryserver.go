package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/queryapi"
)

// served gives the query API what members say.
type served struct{ *clusterinformers.Manager }

func (s served) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	resources, changed := s.Manager.Resources()
	out := make([]queryapi.ServedResource, len(resources))
	for i, r := range resources {
		out[i] = queryapi.ServedResource(r)
	}
	return out, changed
}

// queryServer follows the members of a kubeconfig, says where it serves once it
// holds so many pods, and serves until it is stopped.
func queryServer(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	hub, err := restConfig(os.Getenv("BENCH_HUB"))
	if err != nil {
		return nil, err
	}
	f, err := follow(ctx, members, "Pod", "Node")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	return nil, serveQueries(ctx, f.index, served{f.manager}, hub, func(host string, ca []byte) error {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"host": host, "ca": ca})
	})
}

// serveQueries serves until ctx ends; ready is called with its address and its CA.
func serveQueries(ctx context.Context, index *aggregate.Index, fleet queryapi.Fleet, hub *rest.Config, ready func(host string, ca []byte) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err := queryapi.New(queryapi.Options{
		Index: index, Fleet: fleet, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Listener: listener, Hub: hub, Authentication: queryapi.Authentication{ClientCAFile: os.Getenv("BENCH_CA")},
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = server.Run(ctx) })
	err = ready("https://"+listener.Addr().String(), server.CertificateAuthority())
	if err != nil {
		cancel()
	}
	running.Wait()
	return errors.Join(err, ended)
}
