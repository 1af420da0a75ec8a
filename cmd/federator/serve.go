package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"federator.dev/federator/cmd/federator/revisions"
	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/queryapi"
)

const serveHelp = `Watch the members of a fleet and keep one index of their objects.

Members are the Clusters of a Cluster API hub, or the contexts of a kubeconfig:

  federator serve --hub-kubeconfig hub.yaml --namespaces fleet
  federator serve --contexts dev,staging

Everything that can be set is in the configuration file; --print-config writes
it with comments, defaults and flags applied. The members' objects are
served at --query, a Kubernetes API over all of them (see federator kubeconfig). Memory
follows the Go runtime's own settings, GOGC and GOMEMLIMIT, in the environment.`

func newServeCommand() *cobra.Command {
	var flags config.Flags
	var listen config.Listen
	var query config.Query
	var policies config.Policies
	var print bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Watch the members and serve the query API, health, metrics and the admin endpoint",
		Long:  serveHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fs := cmd.Flags()
			cfg, err := flags.Load(fs, func(c *config.Config) {
				config.Override(fs, "listen", &c.Listen.Serve, listen.Serve)
				config.Override(fs, "admin", &c.Listen.Admin, listen.Admin)
				config.Override(fs, "pprof", &c.Listen.Pprof, listen.Pprof)
				config.Override(fs, "query", &c.Query.Listen, query.Listen)
				config.Override(fs, "query-kubeconfig", &c.Query.Kubeconfig, query.Kubeconfig)
				config.Override(fs, "policies", &c.Policies.Dirs, policies.Dirs)
				config.Override(fs, "bindings", &c.Policies.Bindings, policies.Bindings)
			})
			if err != nil {
				return err
			}
			if print {
				return config.Print(cmd.OutOrStdout(), cfg)
			}
			return serve(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	flags.Register(cmd.Flags())
	cmd.Flags().StringVar(&listen.Serve, "listen", "", "`address` of /healthz, /readyz and /metrics (default "+config.DefaultServe+", without a hub "+config.DefaultServeLocal+")")
	cmd.Flags().StringVar(&listen.Admin, "admin", "", "loopback `address` of /members, empty for none (default "+config.DefaultAdmin+")")
	cmd.Flags().StringVar(&query.Listen, "query", "", "`address` of the query API, empty for none (default "+config.DefaultQuery+", without a hub "+config.DefaultQueryLocal+")")
	cmd.Flags().StringVar(&query.Kubeconfig, "query-kubeconfig", "", "without a hub: `file` to write address and token of the query API to")
	cmd.Flags().StringSliceVar(&policies.Dirs, "policies", nil, "`directories` of policies to evaluate on the fleet (default none)")
	cmd.Flags().StringVar(&policies.Bindings, "bindings", "", "`file` of bindings; a policy without one is evaluated everywhere")
	cmd.Flags().BoolVar(&listen.Pprof, "pprof", false, "serve /debug/pprof on the admin address")
	cmd.Flags().BoolVar(&print, "print-config", false, "print the configuration that would be used, with comments, and exit")
	return cmd
}

// serve runs until ctx is done or a component fails. Components stop in the reverse order
// of their start, each joined before the next is stopped: the query API, what it holds, the Notifications, the policies,
// the manager, the connections of agents, what keeps the index, the keeper of revisions, the trainer, what sends traces, the HTTP servers.
func serve(ctx context.Context, cfg config.Config, stderr io.Writer) error {
	log, err := config.NewLogger(stderr, cfg.Log)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	policies, err := loadPolicies(&cfg, stderr)
	if err != nil {
		return err
	}
	keeper, err := reserveRevisions(ctx, &cfg, log)
	if err != nil {
		return err
	}
	agents, err := newAgentServer(ctx, &cfg, log, registry)
	if err != nil {
		return err
	}
	defer agents.close()
	var corrections *enforcement.Enforcement // nil without the hub's policies; set before anything runs
	var lead func() (time.Time, error)       // who corrects also says who holds what
	if cfg.Policies.Hub {
		lead = func() (time.Time, error) { return corrections.Lease() }
	}
	shared, err := newSharing(ctx, &cfg, keeper.First().First, lead, log, registry)
	if err != nil {
		return err
	}
	defer shared.close()
	tracer, sendTraces, err := newTracer(ctx, &cfg, keeper.Installation(), log, registry)
	if err != nil {
		return err
	}
	f, err := fleet.New(cfg, fleet.Options{
		Revisions: keeper.First(), Installation: keeper.Installation(), UserAgent: userAgent(), Logger: log, Metrics: registry, Persist: true, Agents: agents.dialer(), Sources: shared.sources(), TakeOver: shared.takeOver(), Tracer: tracer,
		OnLoss: func(l clusterinformers.Loss) { recordLoss(corrections, l) },
		OnKept: func(why string) {
			if corrections != nil { // otherwise the log, /readyz and the metrics say it
				corrections.RecordKept(why)
			}
		},
	})
	if err != nil {
		return err
	}
	registry.MustRegister(keeper.Metrics(f.Index))
	if policies != nil {
		refs, _ := policies.Reads()
		f.Manager.RequireKinds(enforcement.KindNames(refs))
	}
	loop, err := newLoop(policies, f, shared.Sharing, tracer, log, registry)
	if err != nil {
		return err
	}
	var hook http.Handler
	evaluate := component.Idle
	if loop != nil {
		evaluate = shared.judged(loop.Run)
	}
	if cfg.Policies.Hub {
		config, err := fleet.HubConfig(&cfg, userAgent())
		if err != nil {
			return err
		}
		e, err := newEnforcement(&cfg, config, f, shared.corrections(keeper.First().First), tracer, log, registry)
		if err != nil {
			return err
		}
		evaluate, loop, corrections = e.Run, e.Loop, e
		if cfg.Policies.Webhook.Listen != "" {
			if hook, err = newPushHook(cfg.Policies.Webhook, e, log); err != nil {
				return err
			}
		}
	}
	state := &health{fleet: f}
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.close()
		}
	}()
	listen := func(name, addr string, h http.Handler, config *tls.Config) error {
		if addr == "" {
			return nil
		}
		s, err := newServer(ctx, name, addr, h, config, log)
		if err != nil {
			return err
		}
		servers = append(servers, s)
		return nil
	}
	hub, err := fleet.HubConfig(&cfg, userAgent())
	if err != nil {
		return err
	}
	public, err := publicHandler(state, registry, hub, log)
	if err != nil {
		return err
	}
	certificate, err := servingTLS(cfg.Listen.TLS, log)
	if err != nil {
		return err
	}
	if err := listen("serve", cfg.Listen.Serve, public, certificate); err != nil {
		return err
	}
	if err := listen("admin", cfg.Listen.Admin, adminHandler(f, cfg.Listen.Pprof), nil); err != nil {
		return err
	}
	if err := listen("webhook", cfg.Policies.Webhook.Listen, hook, nil); err != nil {
		return err
	}
	c := components{fleet: f, keeper: keeper, policies: evaluate, servers: servers, agents: agents.run, shared: shared.run, traces: sendTraces}
	if c.history, err = recording(&cfg, f, hub, loop, corrections, log); err != nil {
		return err
	}
	if c.notifications, err = notifying(&cfg, f, hub, loop, corrections, shared, log, registry); err != nil {
		return err
	}
	if c.held, err = newHeld(&cfg, f, hub, loop, log); err != nil {
		return err
	}
	if c.query, err = newQueryServer(ctx, cfg, f, loop, c.held, shared, tracer, log, registry); err != nil {
		return err
	}
	if err := shared.serve(f, loop, corrections, c.query); err != nil {
		return err
	}
	return run(ctx, c, state, log)
}

// components are what serve runs.
type components struct {
	fleet    *fleet.Fleet
	keeper   *revisions.Keeper
	policies func(context.Context) error
	agents   func(context.Context) error
	shared   func(context.Context) error
	history  func(context.Context) error
	// notifications sends what history has.
	notifications func(context.Context) error

	traces  func(context.Context) error
	held    held
	query   *queryapi.Server // nil: none
	servers []*server
}

// run starts the components, waits for the end and joins them.
func run(ctx context.Context, c components, state *health, log *slog.Logger) error {
	failed := make(chan error, len(c.servers)+10)
	for _, s := range c.servers {
		s.start(failed)
	}
	serveQueries := component.Idle
	if c.query != nil {
		serveQueries = c.query.Run
	}
	// It is listened to while this loads what was kept, and answers that it does.
	query := component.Start(context.WithoutCancel(ctx), serveQueries, failed)
	c.fleet.Load(ctx)
	// The components outlive ctx for the time of an orderly shutdown.
	outlive := context.WithoutCancel(ctx)
	traces := component.Start(outlive, c.traces, failed)
	trainer := component.Start(outlive, func(ctx context.Context) error { c.fleet.Maintain(ctx); return nil }, nil)
	keeper := component.Start(outlive, func(ctx context.Context) error { return c.keeper.Run(ctx, c.fleet.Index) }, failed)
	disk := component.Start(outlive, c.fleet.Keep, failed)
	agents := component.Start(outlive, c.agents, failed)
	shared := component.Start(outlive, c.shared, failed)
	manager := component.Start(outlive, c.fleet.Manager.Run, failed)
	policies := component.Start(outlive, c.policies, failed)
	held := component.Start(outlive, c.held.run, failed)
	history := component.Start(outlive, c.history, failed)
	notifications := component.Start(outlive, c.notifications, failed)
	log.Info("started", "version", version())

	var err error
	select {
	case <-ctx.Done():
		log.Info("stopping", "cause", context.Cause(ctx))
	case err = <-failed:
		log.Info("stopping", "cause", "a component ended")
	}
	state.stopping.Store(true)
	errs := []error{err, query.Stop(), held.Stop(), notifications.Stop(), policies.Stop(), history.Stop(), manager.Stop(), shared.Stop(), agents.Stop(), disk.Stop(), keeper.Stop(), trainer.Stop(), traces.Stop()}
	for i := len(c.servers) - 1; i >= 0; i-- {
		errs = append(errs, c.servers[i].close())
	}
	log.Info("stopped")
	return errors.Join(errs...)
}

// listenTCP opens a listener.
func listenTCP(ctx context.Context, name, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen.%s: %w", name, err)
	}
	return l, nil
}
