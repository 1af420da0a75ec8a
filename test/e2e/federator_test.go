package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/source"
	"federator.dev/federator/test/kube"
)

// config is what a story may set, beside the hub's namespace that is its own.
type config struct {
	Kinds            []clusterinformers.KindRule    `json:"kinds,omitempty"`
	Held             []clusterinformers.HeldVersion `json:"held,omitempty"`
	Budget           clusterinformers.Budget        `json:"budget,omitempty"`
	Allow            []netip.Prefix                 `json:"allow,omitempty"`    // default: 127.0.0.0/8, where all members are
	Contexts         []string                       `json:"contexts,omitempty"` // of the file "contexts.yaml", instead of the hub
	Hub              bool                           `json:"hub,omitempty"`      // the hub is a member too
	KeepSecretValues bool                           `json:"keepSecretValues,omitempty"`

	PingInterval, PingTimeout time.Duration `json:"-"`
	LogBytes                  int64         `json:"-"`
}

// rule returns the rule that narrows a kind, and whether the kind is kept.
func (c config) rule(kind aggregate.Kind) (clusterinformers.KindRule, bool) {
	for _, r := range c.Kinds {
		if r.Kind == string(kind) || r.Kind == "*" && !quiet(kind) {
			return r, !r.Exclude
		}
	}
	return clusterinformers.KindRule{}, c.Kinds == nil && !quiet(kind)
}

// lists returns in how many parts a kind is listed.
func (c config) lists(kind aggregate.Kind) int {
	rule, _ := c.rule(kind)
	return max(1, len(rule.Namespaces))
}

func quiet(kind aggregate.Kind) bool {
	return kind == "Event" || kind == "Event.events.k8s.io" || kind == "Lease.coordination.k8s.io"
}

// federator is an index and who fills it, wired as the command does.
type federator struct {
	config  config
	index   *aggregate.Index
	manager *clusterinformers.Manager
	log     *logs

	stop func() error // ends and joins it; later calls return the first result
}

// blocks of revisions that federators of this process have taken.
var blocks atomic.Uint64

// finder makes the sources of a federator.
type finder func(*slog.Logger) ([]clusterinformers.Source, error)

// startFederator watches the members that find returns.
func startFederator(cfg config, find finder) (*federator, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(blocks.Add(1)), LogBytes: cfg.LogBytes})
	if err != nil {
		return nil, err
	}
	f := &federator{config: cfg, index: index, log: &logs{}}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	if cfg.Allow == nil {
		cfg.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	sources, err := find(log)
	if err != nil {
		return nil, err
	}
	f.manager, err = clusterinformers.New(clusterinformers.Options{
		Index: index, Sources: sources, Logger: log, Kinds: cfg.Kinds, Held: cfg.Held, Budget: cfg.Budget,
		Network: connection.Network{Allow: cfg.Allow}, KeepSecretValues: cfg.KeepSecretValues,
		PingInterval: cfg.PingInterval, PingTimeout: cfg.PingTimeout,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = f.manager.Run(ctx) })
	running.Go(func() { train(ctx, index) })
	f.stop = sync.OnceValue(func() error {
		cancel()
		running.Wait()
		return ended
	})
	return f, nil
}

// clusters finds the Clusters in a namespace of the hub and, optionally, the
// hub itself.
func clusters(hub *kube.Hub, namespace string, self bool) finder {
	return func(log *slog.Logger) ([]clusterinformers.Source, error) {
		src, err := source.NewClusterAPI(source.ClusterAPIOptions{Config: hub.RESTConfig(), Namespaces: []string{namespace}, Logger: log})
		if err != nil || !self {
			return []clusterinformers.Source{src}, err
		}
		also, err := source.NewHub(source.HubOptions{Config: hub.RESTConfig(), Logger: log})
		return []clusterinformers.Source{src, also}, err
	}
}

// contexts finds contexts of a kubeconfig.
func contexts(file string, names []string) finder {
	return func(log *slog.Logger) ([]clusterinformers.Source, error) {
		src, err := source.NewContexts(source.ContextsOptions{Path: file, Names: names, Logger: log})
		return []clusterinformers.Source{src}, err
	}
}

// train makes dictionaries, as the command does.
func train(ctx context.Context, index *aggregate.Index) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if _, more, err = index.Train(ctx.Done()); err != nil {
				break
			}
		}
	}
}

// member returns what is known of a member.
func (f *federator) member(name string) (clusterinformers.MemberStatus, error) {
	for _, m := range f.manager.Members() {
		if m.Name == name {
			return m, nil
		}
	}
	return clusterinformers.MemberStatus{}, fmt.Errorf("member %s is not known", name)
}
