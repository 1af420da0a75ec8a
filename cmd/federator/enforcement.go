package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/policies"
)

// enforcement is the policies of a hub: PolicySources and FleetPolicies, what the
// policies find, and what corrects it.
type enforcement struct {
	git        *policysource.Manager
	sources    *hub.PolicySources
	policies   *hub.FleetPolicies
	events     *hub.Events
	reports    *hub.Reports
	loop       *enforce.Loop
	dispatcher *remediate.Dispatcher
	stop       *hub.Stop
	rollbacks  *hub.Rollbacks
	elector    *elector
	manager    *clusterinformers.Manager
}

// newEnforcement wires them. Nothing runs yet.
func newEnforcement(cfg Config, config *rest.Config, f *fleet, log *slog.Logger, metrics prometheus.Registerer) (*enforcement, error) {
	e := &enforcement{manager: f.manager}
	base, err := cfg.baseSources()
	if err != nil {
		return nil, err
	}
	reserved := make([]string, 0, len(base))
	for _, s := range base {
		reserved = append(reserved, s.Name)
	}
	e.git, err = policysource.NewManager(policysource.Options{
		Base: base, Test: policysource.RunTests(policytest.Options{}), Diff: e.diff, Dial: f.network.Dialer().DialContext,
		AllowFile: cfg.Policies.AllowFile, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	if e.elector, err = newElector(config, cfg.Policies.Namespace, log); err != nil {
		return nil, err
	}
	unbounded := rest.CopyConfig(config)
	unbounded.QPS = -1 // limits bound corrections, and the hub its callers
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // of statuses: client-go's 5 would keep hundreds of FleetPolicies waiting
	leads := func() bool { return e.elector.lead() == nil }
	client, err := kubernetes.NewForConfig(unbounded)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	poke := func() {
		if e.policies != nil {
			e.policies.Trigger()
		}
	}
	e.dispatcher, err = remediate.New(remediate.Options{
		Clients: writers{f.manager}, Hub: client.CoreV1().RESTClient(), CheckLeader: e.elector.lead, Held: f.manager.Held, Health: hub.Health(f.index),
		Retention: cfg.Policies.ActionRetention, Keep: cfg.Policies.ActionsKept,
		Changed: func(string) { poke() }, Corrected: func(a *remediate.Action) { e.policies.RecordAction(a) }, Logger: log, Metrics: metrics,
	})
	if err != nil {
		return nil, err
	}
	if e.stop, err = hub.NewStop(hub.StopOptions{Config: config, Namespace: cfg.Policies.Namespace, Dispatcher: e.dispatcher, OnChange: poke, Logger: log}); err != nil {
		return nil, err
	}
	if e.rollbacks, err = hub.NewRollbacks(hub.RollbacksOptions{Config: config, Dispatcher: e.dispatcher, Stop: e.stop, IsLeader: leads, Logger: log}); err != nil {
		return nil, err
	}
	if e.events, err = hub.NewEvents(hub.EventsOptions{Config: config, IsLeader: leads, Instance: e.elector.host, Logger: log}); err != nil {
		return nil, err
	}
	corrector := enforce.NewCorrector(e.dispatcher, log)
	set := e.git.State().Set
	own, _ := policy.DefaultBindings(set, nil)
	e.loop, err = enforce.New(enforce.Options{Index: f.index, Set: set, Bindings: own, Limits: policyShares(debug.SetMemoryLimit(-1)), Changed: corrector.Changed, Logger: log, Metrics: metrics})
	if err != nil {
		return nil, err
	}
	e.sources, err = hub.NewPolicySources(hub.PolicySourcesOptions{
		Config: config, Manager: e.git, SecretNamespaces: cfg.Policies.SecretNamespaces, ReservedNames: reserved, IsLeader: leads, OnChange: poke, Events: e.events, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if err := metrics.Register(e.sources.Metrics()); err != nil {
		return nil, fmt.Errorf("policy sources: metrics: %w", err)
	}
	e.policies, err = hub.NewFleetPolicies(hub.FleetPoliciesOptions{
		Config: config, Library: e.sources, Loop: e.loop, Corrector: corrector, Dispatcher: e.dispatcher, IsLeader: leads, Events: e.events, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	e.reports, err = hub.NewReports(hub.ReportsOptions{
		Config: config, Loop: e.loop, Library: e.sources, IsLeader: leads, Disabled: !cfg.Policies.Reports,
		Namespaces: cfg.clusterNamespaces(), Interval: cfg.Policies.ReportInterval, Logger: log,
	})
	return e, err
}

// run runs all of it until the context ends, or one of them does. The lease is let go
// of when all that acts has ended: another process may act at once then.
func (e *enforcement) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leased, release := context.WithCancel(context.WithoutCancel(ctx))
	var election, wg sync.WaitGroup
	election.Go(func() {
		if err := e.elector.run(leased); leased.Err() == nil {
			cancel(fmt.Errorf("%w: %w", errEnded, err))
		}
	})
	for _, part := range []func(context.Context) error{
		e.git.Run, e.stop.Run, e.loop.Run, e.dispatcher.Run, e.rollbacks.Run, e.sources.Run, e.policies.Run, e.events.Run, e.reports.Run, e.follow,
	} {
		wg.Go(func() {
			if err := part(ctx); ctx.Err() == nil {
				cancel(fmt.Errorf("%w: %w", errEnded, err))
			}
		})
	}
	wg.Wait()
	release()
	election.Wait()
	return context.Cause(ctx)
}

// diff says what a commit would change on the fleet.
func (e *enforcement) diff(ctx context.Context, c policysource.Candidate) (policysource.Difference, error) {
	return e.policies.Diff(ctx, c)
}

// follow lets members be asked for what the active policies read.
func (e *enforcement) follow(ctx context.Context) error {
	for {
		set, replaced := e.sources.Policies()
		e.manager.Want(kindsOf(set))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-replaced:
		}
	}
}

func kindsOf(set *policy.Set) []policy.Kind {
	refs, _ := set.Kinds()
	kinds := make([]policy.Kind, 0, len(refs))
	for _, k := range refs {
		kinds = append(kinds, k.Kind)
	}
	return kinds
}

// clusterNamespaces are where Clusters are found; none means everywhere.
func (c *Config) clusterNamespaces() []string {
	if c.Sources.ClusterAPI == nil {
		return nil
	}
	return c.Sources.ClusterAPI.Namespaces
}

// baseSources are the policies that no PolicySource brings.
func (c *Config) baseSources() ([]policy.Source, error) {
	var base []policy.Source
	if c.Policies.Library {
		s, err := policy.ReadSource("federator", policies.FS)
		if err != nil {
			return nil, fmt.Errorf("policies.library: %w", err)
		}
		base = append(base, s)
	}
	if len(c.Policies.Dirs) > 0 {
		more, err := readSources(c.Policies.Dirs)
		if err != nil {
			return nil, fmt.Errorf("policies.dirs: %w", err)
		}
		for i := range more {
			if c.Policies.Hub { // sources have names there, which FleetPolicies may ask for
				more[i].Name = fmt.Sprintf("dir-%d", i+1)
			}
		}
		base = append(base, more...)
	}
	return base, nil
}

// writers give corrections access to members.
type writers struct{ manager *clusterinformers.Manager }

// Client implements remediate.Clients.
func (w writers) Client(member string, kind policy.Kind, apiVersion string) (*remediate.Client, error) {
	client, resource, namespaced, err := w.manager.Writer(member, kind, apiVersion)
	if err != nil {
		return nil, err
	}
	return &remediate.Client{REST: client, Resource: resource, Namespaced: namespaced}, nil
}
