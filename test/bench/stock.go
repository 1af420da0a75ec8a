package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// stock is a stock dynamic informer on pods: what most hubs are made of.
type stock struct {
	informer cache.SharedIndexInformer
	factory  dynamicinformer.DynamicSharedInformerFactory
	cancel   context.CancelFunc
}

func startStock(ctx context.Context, config *rest.Config, handler cache.ResourceEventHandler) (*stock, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &stock{factory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0)}
	s.informer = s.factory.ForResource(podResource).Informer()
	if handler != nil {
		if _, err := s.informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.factory.Start(ctx.Done())
	return s, nil
}

func (s *stock) synced(ctx context.Context, pods int) error {
	err := poll(ctx, 10*time.Minute, func() bool {
		return s.informer.HasSynced() && len(s.informer.GetStore().ListKeys()) >= pods
	})
	if err != nil {
		return fmt.Errorf("stock informer: %w", err)
	}
	return nil
}

func (s *stock) stop() {
	s.cancel()
	s.factory.Shutdown()
}
