package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/mcp"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/remediate/planreader"
	"federator.dev/federator/pkg/tracing"
)

// querySource gives the query API what it needs of members besides their objects.
type querySource struct{ *clusterinformers.Manager }

// Resources implements queryapi.Fleet.
func (s querySource) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	resources, changed := s.Manager.Resources()
	served := make([]queryapi.ServedResource, len(resources))
	for i, r := range resources {
		served[i] = queryapi.ServedResource(r)
	}
	return served, changed
}

// newQueryServer opens the query API's listener and returns its server; nil
// when it is disabled. Nothing is served yet.
func newQueryServer(ctx context.Context, cfg config.Config, f *fleet.Fleet, loop *enforce.Loop, held held, shared *sharedFleet, tracer *tracing.Tracer, log *slog.Logger, metrics prometheus.Registerer) (*queryapi.Server, error) {
	q := cfg.Query
	if q.Listen == "" {
		return nil, nil
	}
	hubREST, err := fleet.HubConfig(&cfg, userAgent())
	if err != nil {
		return nil, err
	}
	listener, err := listenTCP(ctx, "query", q.Listen)
	if err != nil {
		return nil, err
	}
	plans, err := planReaderOf(&cfg, hubREST)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	source := querySource{f.Manager}
	opts := queryapi.Options{
		Queries: queries(f.Index, f.History(), loop, f.Manager.Kinds, plans, held.onHub, held.series, testedBy(&cfg), cfg.Sources.Describing()),
		Index:   f.Index, Loading: f.Loading, Grants: f.Grants(), Fleet: source, Proved: f.Manager.Proved, WritesHeld: f.Manager.WritesHeld, WritesWith: f.Manager.WritesWith, Health: healthOf(f.Manager), Installation: f.Installation, Via: f.Manager.Via, Known: f.Manager.Known, Logger: log, Metrics: metrics, Listener: listener,
		Hub: hubREST, Local: hubREST == nil, ValuesRedacted: !cfg.KeepSecretValues,
		TLS:            queryapi.TLS{CertFile: q.TLS.CertFile, KeyFile: q.TLS.KeyFile, Hosts: q.TLS.Hosts, MinVersion: q.TLS.Version()},
		Authentication: queryapi.Authentication{Audiences: q.Audiences, ClientCAFile: q.ClientCAFile},
		Fairness:       queryapi.Fairness{Priority: q.Priority, MaxInFlight: q.MaxInFlight, MaxWatches: q.MaxWatches},
		Limits:         queryapi.Limits{Request: q.Timeout},
		Audit: queryapi.Audit{
			PolicyFile: q.Audit.PolicyFile, LogFile: q.Audit.LogFile,
			MaxBytes: q.Audit.MaxBytes, MaxBackups: q.Audit.MaxBackups, MaxAge: q.Audit.MaxAge,
		},
		Authorization: queryapi.Authorization{
			AllowTTL: q.AllowTTL, DenyTTL: q.DenyTTL,
		},
	}
	if q.AskMembers != nil {
		opts.Authorization.Members, opts.Authorization.UserPrefix = f.Manager, q.AskMembers.UserPrefix
	}
	if tracer != nil { // an interface that has a nil pointer is not nil
		opts.Traces = tracer.Queries()
	}
	shared.addTo(&opts)
	if err := addUI(&opts, &cfg, hubREST, log); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if err := addMCP(&opts, &cfg, log, metrics); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server, err := queryapi.New(opts)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	log.Info("listening", "server", "query", "address", listener.Addr().String())
	if err := writeLocal(q.Kubeconfig, server, listener.Addr(), hubREST == nil, log); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, nil
}

// addMCP adds the tools for assistants to the options of the query API, where they are enabled.
func addMCP(opts *queryapi.Options, cfg *config.Config, log *slog.Logger, metrics prometheus.Registerer) error {
	if !cfg.Query.MCP {
		return nil
	}
	tools, err := mcp.New(mcp.Options{Version: version(), Logger: log, Metrics: metrics})
	if err != nil {
		return err
	}
	opts.MCP = tools
	return nil
}

// queries returns the queries about policies: Rego, those about verdicts where there is a loop and, where policies
// are the hub's, Plans and what onHub holds.
func queries(index *aggregate.Index, past *history.History, loop *enforce.Loop, kinds policyquery.Kinds, plans policyquery.PlanReader, onHub *hubreader.Reader, series *policyquery.Series, tested func(source string) policyquery.TestedBy, describing []string) map[string]queryapi.Query {
	rego := &policyquery.Rego{Index: index, Kinds: kinds, MaxPulled: min(previewBytes(), policyquery.MaxPulled)}
	all := map[string]queryapi.Query{"rego": rego}
	var hub policyquery.Hub // nil without a reader
	if onHub != nil {
		hub = onHub
		actions := policyquery.Actions{Kinds: kinds, Index: index, Hub: hub}
		all["actions"], all["actions/{name}"] = actions, policyquery.Action{Actions: actions}
		all["halts"] = policyquery.Halts{Hub: hub}
		all["sources"], all["stops"] = policyquery.Sources{Hub: hub}, policyquery.Stops{Kinds: kinds, Index: index, Hub: hub}
	}
	if past != nil {
		q := policyquery.History{Kinds: kinds, Index: index, History: past, Hub: hub}
		if loop != nil {
			q.State = loop.State
		}
		all["history"] = q
	}
	if loop != nil {
		rego.State = loop.State
		all["violations"] = policyquery.Violations{Kinds: kinds, Loop: loop}
		all["policies"] = &policyquery.Policies{Kinds: kinds, Loop: loop, Hub: hub, Series: series, Tested: tested}
		all["series"] = series
		all["preview"] = &policyquery.Preview{Kinds: kinds, Loop: loop, Describing: describing, MaxBytes: previewBytes()}
		all["explain"] = policyquery.Explain{Kinds: kinds, Loop: loop, Rego: rego, Hub: hub}
	}
	if plans != nil {
		all["plans/{policy}"] = policyquery.Plans{Kinds: kinds, Index: index, Reader: plans}
	}
	return all
}

// previewBytes is a tenth of the memory that the process may take, 0 where that has no limit.
func previewBytes() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return max(limit/10, 1)
}

// held is what runs to answer queries: nil where nothing needs it.
type held struct {
	onHub  *hubreader.Reader   // of the objects on the hub
	series *policyquery.Series // of numbers
}

// newHeld returns what is to run: nothing where nothing is queried.
func newHeld(cfg *config.Config, f *fleet.Fleet, hubREST *rest.Config, loop *enforce.Loop, log *slog.Logger) (k held, err error) {
	if cfg.Query.Listen == "" || loop == nil {
		return held{}, nil
	}
	o := policyquery.SeriesOptions{Kinds: f.Manager.Kinds, Loop: loop, Index: f.Index}
	if cfg.Policies.Hub {
		if k.onHub, err = hubreader.New(hubreader.Options{Config: hubREST, Namespace: cfg.Policies.Namespace, Loop: loop, Logger: log}); err != nil {
			return held{}, err
		}
		o.Hub = k.onHub
	}
	k.series = policyquery.NewSeries(o)
	return k, nil
}

// run runs it until the context ends.
func (k held) run(ctx context.Context) error {
	var wg sync.WaitGroup
	if k.onHub != nil {
		wg.Go(func() { _ = k.onHub.Run(ctx) }) // its only error is the context's
	}
	if k.series != nil {
		wg.Go(func() { _ = k.series.Run(ctx) }) // its only error is the context's
	}
	<-ctx.Done()
	wg.Wait()
	return context.Cause(ctx)
}

// planReaderOf returns a reader of the Plans on the hub, nil where policies are not the hub's.
func planReaderOf(cfg *config.Config, hubREST *rest.Config) (policyquery.PlanReader, error) {
	if !cfg.Policies.Hub {
		return nil, nil // no Plans
	}
	unbounded := rest.CopyConfig(hubREST)
	unbounded.QPS = -1 // the query API bounds its callers
	client, err := hub.NewRESTClient(unbounded)
	if err != nil {
		return nil, err
	}
	return planReader{planreader.New(client)}, nil
}

// planReader implements policyquery.PlanReader.
type planReader struct{ *planreader.Reader }

// Groups implements policyquery.PlanReader.
func (r planReader) Groups(ctx context.Context, plan *v1alpha1.Plan, part int) ([]v1alpha1.PlanGroup, error) {
	groups, err := r.Reader.Groups(ctx, plan, part)
	if errors.Is(err, planreader.ErrDamaged) {
		return nil, fmt.Errorf("%w: %w", policyquery.ErrPlanDamaged, err)
	}
	return groups, err
}

// writeLocal writes what users of this machine need to reach the server: the CA of a
// self-signed certificate and, without a hub, address and token.
func writeLocal(path string, server *queryapi.Server, addr net.Addr, withoutHub bool, log *slog.Logger) error {
	path, err := kubeconfigfile.Path(path)
	if err == nil {
		err = kubeconfigfile.WriteAuthority(path+kubeconfigfile.AuthoritySuffix, server.CertificateAuthority())
	}
	switch {
	case err != nil && withoutHub:
		return fmt.Errorf("query.kubeconfig: %w", err)
	case err != nil: // clients authenticate with the hub's tokens, and may be on other machines
		log.Warn("writing the certificate authority failed; federator kubeconfig needs --certificate-authority", "error", err)
	case !withoutHub && server.CertificateAuthority() != nil:
		log.Info("wrote the certificate authority for federator kubeconfig", "file", path+kubeconfigfile.AuthoritySuffix)
	}
	if !withoutHub {
		return nil
	}
	if err := kubeconfigfile.WriteLocal(path, addr.String(), server.Token(), server.CertificateAuthority()); err != nil {
		return fmt.Errorf("query.kubeconfig: %w", err)
	}
	log.Info("wrote a kubeconfig for the query API", "kubeconfig", path)
	return nil
}
