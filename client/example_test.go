package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/client"
)

// Follow the Deployments of all production clusters.
func ExampleNewInformer() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")) // context "fleet"
	if err != nil {
		log.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	deployments := client.ListWatch(dyn,
		schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		client.Selection{Labels: "member.federator.dev/env=production"})
	informer, err := client.NewInformer(deployments, &unstructured.Unstructured{}, client.Options[*unstructured.Unstructured]{
		Handlers: []client.Handler[*unstructured.Unstructured]{{
			Deleted: func(key client.Key, _ *unstructured.Unstructured) { fmt.Println("gone:", key) },
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	go func() {
		<-informer.Synced()
		for _, d := range informer.Lister().List(labels.Everything()) {
			key, _ := client.KeyOf(d)
			fmt.Println(key.Member, d.GetNamespace(), d.GetName())
		}
	}()
	if err := informer.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
