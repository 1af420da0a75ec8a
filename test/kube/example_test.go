package kube_test

import (
	"context"
	"fmt"
	"log"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

func Example() {
	ctx := context.Background()
	fleet, err := kube.Start(ctx, kube.Options{Members: 2, Controllers: true})
	if err != nil {
		log.Fatal(err)
	}
	defer fleet.Stop()

	for _, m := range fleet.Members {
		if err := kube.Workloads(ctx, m, 1); err != nil {
			log.Fatal(err)
		}
		c := kube.Cluster{Namespace: "fleet", Name: m.Name, Kubeconfig: m.Kubeconfig()}
		if err := fleet.Hub.Register(ctx, c); err != nil {
			log.Fatal(err)
		}
	}
	// The network of one member dies; the server of the other.
	if err := fleet.Members[0].Proxy.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}); err != nil {
		log.Fatal(err)
	}
	fleet.Members[1].APIServer.Kill()
	fmt.Println(fleet.Hub.KubeconfigFile())
}
