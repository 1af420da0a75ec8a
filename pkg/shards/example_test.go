package shards_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/shards"
)

// A process takes its part: it serves its peers, and its manager reads the members that it holds.
func Example() {
	serve := func(ctx context.Context, hub *rest.Config, index *aggregate.Index, listener net.Listener, all []clusterinformers.Source, lead func() (time.Time, error), log *slog.Logger) error {
		s, err := shards.New(shards.Options{
			Hub: hub, Namespace: "federator", ID: "federator-0", Epoch: index.First(), Address: "federator-0.federator:9445",
			Replication: 2, Count: 3, Lead: lead, Logger: log,
		})
		if err != nil {
			return err
		}
		manager, err := clusterinformers.New(clusterinformers.Options{Index: index, Sources: s.Sources(all), Logger: log})
		if err != nil {
			return err
		}
		server := &http.Server{Handler: s.Handler(), TLSConfig: s.TLS(), ReadHeaderTimeout: 5 * time.Second}
		failed := make(chan error, 3)
		go func() { failed <- server.ServeTLS(listener, "", "") }()
		go func() { failed <- s.Run(ctx) }()
		go func() { failed <- manager.Run(ctx) }()
		return <-failed
	}
	_ = serve
}
