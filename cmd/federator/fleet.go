package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/source"
)

// fleet is the index and who writes it.
type fleet struct {
	index   *aggregate.Index
	manager *clusterinformers.Manager
	trainer *trainer
	network connection.Network // where they may be
}

// newFleet wires a fleet whose index begins with some revisions. Nothing runs yet.
func newFleet(cfg Config, revisions aggregate.Range, log *slog.Logger, metrics prometheus.Registerer) (*fleet, error) {
	index, err := aggregate.New(aggregate.Options{
		Revisions: revisions,
		LogBytes:  cfg.Index.LogBytes,
		Fields:    cfg.fields(),
	})
	if err != nil {
		return nil, err
	}
	allow, err := cfg.prefixes()
	if err != nil {
		return nil, err
	}
	network := connection.Network{Allow: allow}
	sources, err := newSources(cfg.Sources, network, log)
	if err != nil {
		return nil, err
	}
	manager, err := clusterinformers.New(clusterinformers.Options{
		Index:   index,
		Sources: sources,
		Logger:  log,
		Metrics: metrics,
		Kinds:   cfg.Kinds,
		Held:    cfg.Held,
		Budget: clusterinformers.Budget{
			Bytes: cfg.Budget.Bytes, Objects: cfg.Budget.Objects, ResponseBytes: cfg.Budget.ResponseBytes,
			FleetBytes: cfg.Budget.FleetBytes,
		},
		Network:           network,
		DiscoveryInterval: cfg.DiscoveryInterval,
		ParallelSyncs:     cfg.ParallelSyncs,
		GiveUpAfter:       cfg.GiveUpAfter,
		PingInterval:      cfg.Ping.Interval,
		PingTimeout:       cfg.Ping.Timeout,
		KeepSecretValues:  cfg.KeepSecretValues,
	})
	if err != nil {
		return nil, err
	}
	trainer := newTrainer(index, log)
	if metrics != nil {
		metrics.MustRegister(trainer.total, trainer.failed, indexCollector{index})
	}
	return &fleet{index: index, manager: manager, trainer: trainer, network: network}, nil
}

// newSources returns the sources that are configured.
func newSources(cfg SourcesConfig, network connection.Network, log *slog.Logger) ([]clusterinformers.Source, error) {
	var sources []clusterinformers.Source
	if c := cfg.ClusterAPI; c != nil {
		config, err := restConfig(c.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("sources.clusterAPI: %w", err)
		}
		src, err := source.NewClusterAPI(source.ClusterAPIOptions{
			Config: config, Namespaces: c.Namespaces, Logger: log,
		})
		if err != nil {
			return nil, fmt.Errorf("sources.clusterAPI: %w", err)
		}
		sources = append(sources, src)
	}
	if c := cfg.Contexts; c != nil {
		src, err := c.source(source.ContextsOptions{Network: network, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("sources.contexts: %w", err)
		}
		sources = append(sources, src)
	}
	if c := cfg.Hub; c != nil && c.Enabled {
		path := c.Kubeconfig
		if path == "" && cfg.ClusterAPI != nil {
			path = cfg.ClusterAPI.Kubeconfig
		}
		config, err := restConfig(path)
		if err != nil {
			return nil, fmt.Errorf("sources.hub: %w", err)
		}
		src, err := source.NewHub(source.HubOptions{Config: config, Name: c.Name, Network: network, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("sources.hub: %w", err)
		}
		sources = append(sources, src)
	}
	return sources, nil
}

// restConfig loads the hub's credentials: a file's current context or, without
// a path, those of the pod.
func restConfig(path string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if path == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, nil).ClientConfig()
	}
	if err != nil {
		if path == "" {
			return nil, fmt.Errorf("no kubeconfig is given and this is not a pod (see --contexts and --hub-kubeconfig): %w", err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config.UserAgent = "federator/" + version()
	return config, nil
}

// trainer makes dictionaries for the index as its kinds need them.
type trainer struct {
	index  *aggregate.Index
	log    *slog.Logger
	total  *prometheus.CounterVec
	failed prometheus.Counter
}

func newTrainer(index *aggregate.Index, log *slog.Logger) *trainer {
	return &trainer{
		index: index,
		log:   log,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_index_dictionary_trainings_total",
			Help: "Dictionaries trained for the bodies of a kind.",
		}, []string{"kind"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_index_dictionary_training_failures_total",
			Help: "Dictionary trainings that failed; the older dictionary stays in use.",
		}),
	}
}

// How often the index is asked whether a kind needs a dictionary, and has what was
// encoded fast and has not changed since encoded small.
const (
	trainEvery  = time.Second
	settleEvery = time.Minute
)

// run trains until ctx is done.
func (t *trainer) run(ctx context.Context) {
	tick, settle := time.NewTicker(trainEvery), time.NewTicker(settleEvery)
	defer tick.Stop()
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-settle.C:
			if n := t.index.Settle(ctx.Done()); n > 0 {
				t.log.Debug("encoded bodies that have settled", "objects", n)
			}
			continue
		case <-tick.C:
		}
		for ctx.Err() == nil {
			trained, more, err := t.index.Train(ctx.Done())
			if err != nil {
				t.failed.Inc()
				t.log.Warn("dictionary training failed", "kind", trained.Kind, "err", err)
				break
			}
			if !more {
				break
			}
			t.total.WithLabelValues(string(trained.Kind)).Inc()
			t.log.Debug("trained a dictionary", "kind", trained.Kind, "objects", trained.Objects,
				"bytesBefore", trained.Before, "bytesAfter", trained.After)
		}
	}
}
