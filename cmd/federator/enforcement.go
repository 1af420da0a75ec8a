package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/policies"
)

// enforcement is the policies of a hub: PolicySources and FleetPolicies, the evaluation of
// policies, and corrections.
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
	elector    *election.Elector
	manager    *clusterinformers.Manager
}

// newEnforcement wires its components. Nothing runs yet.
func newEnforcement(cfg config.Config, hubREST *rest.Config, f *fleet.Fleet, log *slog.Logger, metrics prometheus.Registerer) (*enforcement, error) {
	e := &enforcement{manager: f.Manager}
	base, err := baseSources(&cfg)
	if err != nil {
		return nil, err
	}
	reserved := make([]string, 0, len(base))
	for _, s := range base {
		reserved = append(reserved, s.Name)
	}
	e.git, err = policysource.NewManager(policysource.Options{
		Base: base, Diff: e.diff, Dial: f.Network.Dialer().DialContext,
		AllowFile: cfg.Policies.AllowFile, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	if e.elector, err = election.New(hubREST, cfg.Policies.Namespace, log); err != nil {
		return nil, err
	}
	unbounded := rest.CopyConfig(hubREST)
	unbounded.QPS = -1 // limits bound corrections, and the hub its callers
	hubREST = rest.CopyConfig(hubREST)
	hubREST.QPS, hubREST.Burst = 50, 100 // of statuses: client-go's 5 would keep hundreds of FleetPolicies waiting
	isLeader := func() bool { return e.elector.Lead() == nil }
	client, err := kubernetes.NewForConfig(unbounded)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	trigger := func() {
		if e.policies != nil {
			e.policies.Trigger()
		}
	}
	e.dispatcher, err = remediate.New(remediate.Options{
		Clients: writers{f.Manager}, Hub: client.CoreV1().RESTClient(), CheckLeader: e.elector.Lead, Held: f.Manager.CheckWritable, Health: hub.Health(f.Index),
		Retention: cfg.Policies.ActionRetention, Keep: cfg.Policies.ActionsKept,
		Changed: func(string) { trigger() }, Corrected: func(a *remediate.Action) { e.policies.RecordAction(a) }, Logger: log, Metrics: metrics,
	})
	if err != nil {
		return nil, err
	}
	if e.stop, err = hub.NewStop(hub.StopOptions{Config: hubREST, Namespace: cfg.Policies.Namespace, Dispatcher: e.dispatcher, OnChange: trigger, Logger: log}); err != nil {
		return nil, err
	}
	if e.rollbacks, err = hub.NewRollbacks(hub.RollbacksOptions{Config: hubREST, Dispatcher: e.dispatcher, Stop: e.stop, IsLeader: isLeader, Logger: log}); err != nil {
		return nil, err
	}
	if e.events, err = hub.NewEvents(hub.EventsOptions{Config: hubREST, IsLeader: isLeader, Instance: e.elector.Host, Logger: log}); err != nil {
		return nil, err
	}
	corrector := enforce.NewCorrector(e.dispatcher, log)
	set := e.git.State().Set
	own, _ := policy.DefaultBindings(set, nil)
	e.loop, err = enforce.New(enforce.Options{Index: f.Index, Set: set, Bindings: own, Limits: config.PolicyLimits(debug.SetMemoryLimit(-1)), Changed: corrector.Changed, Logger: log, Metrics: metrics})
	if err != nil {
		return nil, err
	}
	e.sources, err = hub.NewPolicySources(hub.PolicySourcesOptions{
		Config: hubREST, Manager: e.git, SecretNamespaces: cfg.Policies.SecretNamespaces, ReservedNames: reserved, IsLeader: isLeader, OnChange: trigger, Events: e.events, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if err := metrics.Register(e.sources.Metrics()); err != nil {
		return nil, fmt.Errorf("policy sources: metrics: %w", err)
	}
	e.policies, err = hub.NewFleetPolicies(hub.FleetPoliciesOptions{
		Config: hubREST, Library: e.sources, Loop: e.loop, Corrector: corrector, Dispatcher: e.dispatcher, IsLeader: isLeader, Events: e.events, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	e.reports, err = hub.NewReports(hub.ReportsOptions{
		Config: hubREST, Loop: e.loop, Library: e.sources, IsLeader: isLeader, Disabled: !cfg.Policies.Reports,
		Namespaces: clusterNamespaces(&cfg), Interval: cfg.Policies.ReportInterval, Logger: log,
	})
	return e, err
}

// run runs all components until the context ends or one of them does. The lease is
// released after all of them have ended, so that another process can take over at once.
func (e *enforcement) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leased, release := context.WithCancel(context.WithoutCancel(ctx))
	var election, wg sync.WaitGroup
	election.Go(func() {
		if err := e.elector.Run(leased); leased.Err() == nil {
			cancel(fmt.Errorf("%w: %w", component.ErrEnded, err))
		}
	})
	for _, runComponent := range []func(context.Context) error{
		e.git.Run, e.stop.Run, e.loop.Run, e.dispatcher.Run, e.rollbacks.Run, e.sources.Run, e.policies.Run, e.events.Run, e.reports.Run, e.requireKinds,
	} {
		wg.Go(func() {
			if err := runComponent(ctx); ctx.Err() == nil {
				cancel(fmt.Errorf("%w: %w", component.ErrEnded, err))
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

// requireKinds keeps the members synced with the kinds that the active policies read.
func (e *enforcement) requireKinds(ctx context.Context) error {
	for {
		set, replaced := e.sources.Policies()
		e.manager.RequireKinds(kindsOf(set))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-replaced:
		}
	}
}

func kindsOf(set *policy.Set) []policy.Kind {
	refs, _ := set.Kinds()
	return kindNames(refs)
}

// kindNames are kinds without their versions, each once.
func kindNames(refs []policy.KindRef) []policy.Kind {
	kinds := make([]policy.Kind, 0, len(refs))
	for _, k := range refs {
		kinds = append(kinds, k.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// clusterNamespaces are the namespaces to find Clusters in; none means all.
func clusterNamespaces(c *config.Config) []string {
	if c.Sources.ClusterAPI == nil {
		return nil
	}
	return c.Sources.ClusterAPI.Namespaces
}

// baseSources returns the policies that are not from PolicySources.
func baseSources(c *config.Config) ([]policy.Source, error) {
	var base []policy.Source
	if c.Policies.Library {
		s, err := policy.ReadSource("federator", policies.FS)
		if err != nil {
			return nil, fmt.Errorf("policies.library: %w", err)
		}
		base = append(base, s)
	}
	if len(c.Policies.Dirs) > 0 {
		more, err := policyfiles.ReadSources(c.Policies.Dirs)
		if err != nil {
			return nil, fmt.Errorf("policies.dirs: %w", err)
		}
		for i := range more {
			if c.Policies.Hub { // FleetPolicies refer to sources by name
				more[i].Name = fmt.Sprintf("dir-%d", i+1)
			}
		}
		base = append(base, more...)
	}
	return base, nil
}

// writers give corrections access to members.
type writers struct{ manager *clusterinformers.Manager }

// Client implements remediate.ClientFactory.
func (w writers) Client(member string, kind policy.Kind, apiVersion string) (*remediate.Client, error) {
	client, resource, namespaced, err := w.manager.Writer(member, kind, apiVersion)
	if err != nil {
		return nil, err
	}
	return &remediate.Client{REST: client, Resource: resource, Namespaced: namespaced}, nil
}
