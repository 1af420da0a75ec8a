package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/heaprelease"
	"federator.dev/federator/internal/verdictmemory"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/tracing"
)

// Fleet is the index and the manager that writes it.
type Fleet struct {
	Index   *aggregate.Index
	Manager *clusterinformers.Manager
	trainer *trainer
	keeper  *keeper
	Network connection.Network // where members may be
	// Installation is the ID of this installation.
	Installation string
	// Form says what of a kind is held, and read by what.
	Form func(aggregate.Kind) string
	// Memory is what of verdicts outlasts the process, or who judges a member; nil: nothing.
	Memory *verdictmemory.Memory

	known       atomic.Bool              // what is not in the index is not: all that was kept was loaded, or all members are known
	lost        func(member string) bool // whether not all was loaded that was kept of it; nil: nothing was kept. Set once loaded.
	made        time.Time
	giveUpAfter time.Duration
}

// Options are what a fleet needs besides its configuration.
type Options struct {
	Revisions aggregate.Range // the first of its index
	UserAgent string          // towards the hub
	// Installation is the ID of this installation, for other federators: it reads them, and they read it. "": a
	// random one.
	Installation string
	Logger       *slog.Logger
	Metrics      prometheus.Registerer   // nil: none
	Agents       clusterinformers.Agents // of members that are reached by their agents; nil: none
	Persist      bool                    // keep the index over restarts, as the configuration says
	// Sources returns what members are read from, given all that the configuration describes; nil: these.
	Sources func([]clusterinformers.Source) []clusterinformers.Source
	// TakeOver is as in clusterinformers.Options.
	TakeOver func(context.Context, clusterinformers.TakeOver) map[aggregate.Kind]time.Time
	// Tracer is as in clusterinformers.Options.
	Tracer *tracing.Tracer
	// OnLoss is called when an audit has found that events were lost, as in clusterinformers.Options.
	OnLoss func(clusterinformers.Loss)
	// OnKept is called, if it is not nil, when nothing is kept over a restart any more although it should, with
	// why, and with "" once it is again. It must not block.
	OnKept func(why string)
}

// New wires a fleet. Nothing runs yet.
func New(cfg config.Config, opts Options) (*Fleet, error) {
	var manager *clusterinformers.Manager
	form := func(kind aggregate.Kind) string {
		return manager.Form(kind) + strings.Join(cfg.Index.Fields[string(kind)], ",")
	}
	var kept *keeper
	if opts.Persist {
		var err error
		read := func(kind aggregate.Kind) bool { return manager.Requires(kind) }
		if kept, err = openKeeper(&cfg, form, read, opts); err != nil {
			return nil, err
		}
	}
	index, err := aggregate.New(aggregate.Options{
		Revisions: opts.Revisions,
		LogBytes:  cfg.Index.LogBytes,
		Fields:    cfg.IndexFields(),
		Hold:      kept != nil && kept.store != nil,
	})
	if err != nil {
		return nil, err
	}
	allow, err := cfg.AllowedPrefixes()
	if err != nil {
		return nil, err
	}
	network := connection.Network{Allow: allow}
	opts.Installation = cmp.Or(opts.Installation, rand.Text())
	sources, err := newSources(cfg.Sources, network, opts)
	if err != nil {
		return nil, err
	}
	if opts.Sources != nil {
		sources = opts.Sources(sources)
	}
	manager, err = clusterinformers.New(clusterinformers.Options{
		Index:   index,
		Sources: sources,
		Logger:  opts.Logger,
		Metrics: opts.Metrics,
		Kinds:   cfg.Kinds,
		Held:    cfg.Held,
		Budget: clusterinformers.Budget{
			Bytes: cfg.Budget.Bytes, Objects: cfg.Budget.Objects, ResponseBytes: cfg.Budget.ResponseBytes,
			FleetBytes: cfg.Budget.FleetBytes,
		},
		Network:           network,
		Agents:            opts.Agents,
		DiscoveryInterval: cfg.DiscoveryInterval,
		ParallelSyncs:     cfg.ParallelSyncs,
		GiveUpAfter:       cfg.GiveUpAfter,
		PingInterval:      cfg.Ping.Interval,
		PingTimeout:       cfg.Ping.Timeout,
		StockTransport:    cfg.Members.Transport == config.TransportStock,
		KeepSecretValues:  cfg.KeepSecretValues,
		Audit:             cfg.Audit.Options(),
		OnLoss:            opts.OnLoss,
		TakeOver:          opts.TakeOver,
		Tracer:            opts.Tracer,
		MetricsPerScope:   cfg.Metrics.PerScope,
		Installation:      opts.Installation,
	})
	if err != nil {
		return nil, err
	}
	memory, err := newMemory(kept, opts.TakeOver != nil, opts.Logger)
	if err != nil {
		return nil, err
	}
	trainer := newTrainer(index, opts.Logger)
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(trainer.total, trainer.failed, indexCollector{index})
		if kept != nil {
			opts.Metrics.MustRegister(kept)
		}
	}
	return &Fleet{Form: form, Memory: memory, Index: index, Manager: manager, trainer: trainer, keeper: kept, Network: network, Installation: opts.Installation, made: time.Now(), giveUpAfter: cfg.GiveUpAfter}, nil
}

// Train trains dictionaries for an index, and recompresses its bodies, until ctx is done.
func Train(ctx context.Context, index *aggregate.Index, log *slog.Logger) {
	newTrainer(index, log).run(ctx)
}

// Maintain trains dictionaries, recompresses bodies and gives memory back after bursts, until
// ctx is done.
func (f *Fleet) Maintain(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { heaprelease.Run(ctx, f.trainer.log) })
	f.trainer.run(ctx)
}
