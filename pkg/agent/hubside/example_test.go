package hubside_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/agent/hubside"
)

func Example() {
	ctx := context.Background()
	config, err := rest.InClusterConfig()
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", ":9443")
	if err != nil {
		panic(err)
	}
	server, err := hubside.New(hubside.Options{
		Hub: config, Namespace: "federator", Listener: listener, Hosts: []string{"federator.example.com"}, Logger: slog.Default(),
	})
	if err != nil {
		panic(err)
	}
	go func() { panic(server.Run(ctx)) }()

	// Who may read the Member lets its agent join, once.
	client := kubernetes.NewForConfigOrDie(config)
	token, err := hubside.CreateToken(ctx, client, "federator", "edge/shop-17", "0f1f4c0e-95f0-4b34-8a4c-0d8f1f8a2f11", hubside.DefaultTokenLife)
	if err != nil {
		panic(err)
	}
	fmt.Println(token)

	// From then on its API server is behind connections that the agent opens.
	c, err := server.DialAgent(ctx, "edge/shop-17", "0f1f4c0e-95f0-4b34-8a4c-0d8f1f8a2f11")
	if err != nil {
		panic(err)
	}
	c.Close()
}
