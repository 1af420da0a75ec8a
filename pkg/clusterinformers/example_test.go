package clusterinformers_test

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func Example() {
	// A cluster to follow.
	fleet, err := sim.New(sim.Options{Members: 1})
	check(err)
	defer fleet.Close()
	cluster := fleet.Members()[0]
	check(cluster.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}))
	kubeconfig, err := cluster.Kubeconfig()
	check(err)

	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	check(err)
	manager, err := clusterinformers.New(clusterinformers.Options{
		Index:   index,
		Sources: []clusterinformers.Source{newFixed(clusterinformers.Spec{Name: "fleet/eu-1", UID: "1", Kubeconfig: kubeconfig, Trusted: true})},
		Logger:  slog.New(slog.DiscardHandler),
		Kinds:   []clusterinformers.KindRule{{Kind: "Pod"}, {Kind: "*.apps"}},
	})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- manager.Run(ctx) }()

	for { // a snapshot is looked at; what comes after it is waited for
		snapshot := index.Snapshot()
		pod, there := snapshot.Get(aggregate.Ref{Member: "fleet/eu-1", Kind: "Pod", Namespace: "shop", Name: "web"})
		if there {
			fmt.Println(pod.Ref(), pod.APIVersion())
			break
		}
		<-index.Newer(snapshot)
	}

	cancel()
	check(<-done)
	// Output: fleet/eu-1 Pod shop/web v1
}
