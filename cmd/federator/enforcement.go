package main

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/tracing"
	"federator.dev/federator/policies"
)

// newEnforcement wires the policies of a hub, as a configuration says. Nothing runs yet.
func newEnforcement(cfg *config.Config, hubREST *rest.Config, f *fleet.Fleet, shards *enforcement.Shards, tracer *tracing.Tracer, log *slog.Logger, metrics prometheus.Registerer) (*enforcement.Enforcement, error) {
	base, err := baseSources(cfg)
	if err != nil {
		return nil, err
	}
	receivers, err := notifyReceivers(&cfg.Policies.Notify)
	if err != nil {
		return nil, err
	}
	identity := "" // one of its own
	if shards != nil {
		identity = cfg.Shards.Name // which the others know it by
	}
	return enforcement.New(enforcement.Options{
		Identity: identity, Shards: shards,
		Hub: hubREST, Index: f.Index, Memory: f.Verdicts(), Members: memberAccess{f.Manager},
		Git:       policysource.Options{Base: base, Dial: f.Network.Dialer().DialContext, AllowFile: cfg.Policies.AllowFile},
		Namespace: cfg.Policies.Namespace, SecretNamespaces: cfg.Policies.SecretNamespaces, Signers: cfg.Policies.Signers,
		Retention: cfg.Policies.ActionRetention, Keep: cfg.Policies.ActionsKept, Protection: cfg.Policies.Corrections.Protection(),
		MaxActions: cfg.Policies.Corrections.MaxActions, MaxActionBytes: cfg.Policies.Corrections.MaxActionBytes,
		Bounds: cfg.Policies.Corrections.Bounds.Limits(), DryRuns: cfg.Policies.Corrections.DryRuns.Rates(), Away: f.Manager.Away, MemberAway: f.Manager.CheckContact, Applied: f.Manager.Applied, Dropped: f.Manager.Dropped,
		GitOps: cfg.Policies.Corrections.GitOps.Trust(), ServerOf: f.Manager.ServerOf,
		KeepSecretValues: cfg.KeepSecretValues,
		Receivers:        receivers, Origin: cfg.Policies.Notify.Origin,
		Reports: hub.ReportsOptions{Disabled: !cfg.Policies.Reports, Namespaces: clusterNamespaces(cfg), Describes: f.Manager.Describes, NoClusters: cfg.Sources.ClusterAPI == nil, Interval: cfg.Policies.ReportInterval},
		Limits:  config.PolicyLimits(debug.SetMemoryLimit(-1)), Tracer: tracer, Logger: log, Metrics: metrics,
	})
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
		s, err := policy.ReadSource(librarySource, policies.FS)
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
				more[i].Name = dirSource(i)
			}
		}
		base = append(base, more...)
	}
	return base, nil
}

// librarySource is the source of the policies that federator brings, and dirSource that of one of policies.dirs, where
// there are PolicySources.
const librarySource = "federator"

func dirSource(i int) string { return fmt.Sprintf("dir-%d", i+1) }

// testedBy returns who has run the tests of a source: gates are only for PolicySources.
func testedBy(c *config.Config) func(source string) policyquery.TestedBy {
	by := map[string]policyquery.TestedBy{}
	if c.Policies.Library {
		by[librarySource] = policyquery.TestedAtBuild
	}
	for i := range c.Policies.Dirs {
		by[dirSource(i)] = policyquery.NotTested
	}
	return func(source string) policyquery.TestedBy {
		if who, base := by[source]; base || !c.Policies.Hub {
			return who
		}
		return policyquery.TestedByGate
	}
}

// memberAccess is what corrections need of members.
type memberAccess struct{ *clusterinformers.Manager }

// Client implements remediate.ClientFactory.
func (m memberAccess) Client(member string, kind policy.Kind, apiVersion string) (*remediate.Client, error) {
	client, resource, namespaced, err := m.Writer(member, kind, apiVersion)
	if err != nil {
		return nil, err
	}
	return &remediate.Client{REST: client, Resource: resource, Namespaced: namespaced}, nil
}

// recordLoss records on the hub what an audit of a member has found. Without policies of the hub, e
// is nil, and the log and the metrics say it.
func recordLoss(e *enforcement.Enforcement, l clusterinformers.Loss) {
	if e == nil || l.Object == nil {
		return // nothing on the hub describes the member
	}
	objects := 0
	for _, n := range l.Differences {
		objects += n
	}
	e.RecordLoss(l.Object, string(l.Kind), objects)
}
