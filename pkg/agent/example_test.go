package agent_test

import (
	"context"
	"log/slog"
	"os"
	"os/signal"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/agent"
)

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cluster, err := rest.InClusterConfig()
	if err != nil {
		panic(err)
	}
	a, err := agent.New(agent.Options{
		Hubs:    []string{"federator-0.example.com:9443", "federator-1.example.com:9443"},
		Token:   os.Getenv("TOKEN"), // of federator agent token; not needed once it has joined
		Cluster: cluster,
		Store:   agent.InDirectory("/var/lib/federator-agent"),
		Version: "v1.0.0",
		Logger:  slog.Default(),
	})
	if err != nil {
		panic(err)
	}
	if err := a.Run(ctx); err != nil {
		panic(err)
	}
}
