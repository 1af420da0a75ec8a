package main

import (
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/internal/sharing"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/tracing"
)

// loadPolicies loads the policies that the configuration names; nil for none.
func loadPolicies(c *config.Config, stderr io.Writer) (*policyfiles.Bundle, error) {
	if c.Policies.Hub || len(c.Policies.Dirs) == 0 && !c.Policies.Library {
		return nil, nil // No policies is no error; those of a hub are loaded by newEnforcement.
	}
	base, err := baseSources(c)
	if err != nil {
		return nil, err
	}
	set, err := policy.Load(base, policy.LoadOptions{})
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	if len(set.Packages) == 0 {
		return nil, fmt.Errorf("policies: no policy found in %s", strings.Join(c.Policies.Dirs, ", "))
	}
	b, err := policyfiles.Bind(set, c.Policies.Bindings, nil, stderr)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return b, nil
}

// newLoop returns the loop that evaluates a bundle, nil for none.
func newLoop(b *policyfiles.Bundle, f *fleet.Fleet, shared *sharing.Sharing, tracer *tracing.Tracer, log *slog.Logger, metrics prometheus.Registerer) (*enforce.Loop, error) {
	if b == nil {
		return nil, nil // No policies, no loop.
	}
	names := make([]string, 0, len(b.Bindings))
	for _, x := range b.Bindings {
		names = append(names, x.Name)
	}
	log.Info("evaluating policies", "packages", len(b.Set.Packages), "policies", strings.Join(names, " "))
	opts := enforce.Options{Index: f.Index, Memory: f.Verdicts(), Set: b.Set, Bindings: b.Bindings, External: policy.NoExternal(), Limits: config.PolicyLimits(debug.SetMemoryLimit(-1)), Tracer: tracer, Logger: log, Metrics: metrics}
	if shared != nil {
		opts.Peers, opts.Exports, opts.Subscribe, opts.KeyOwner = shared.PeersIndex(), true, true, shared.KeyOwner()
		opts.Changed = func(c *policy.Changes, _ *aggregate.Batch) { shared.Changed(c) }
	}
	return enforce.New(opts)
}
