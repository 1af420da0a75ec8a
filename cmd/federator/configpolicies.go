package main

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
)

// PoliciesConfig says which policies judge the fleet.
type PoliciesConfig struct {
	Dirs     []string `yaml:"dirs" doc:"Directories of policies. They are read once, at the start. Empty: none."`
	Bindings string   `yaml:"bindings" doc:"File of bindings. A policy without one is evaluated everywhere."`
}

func (c *Config) checkPolicies(p *problems) {
	if len(c.Policies.Dirs) == 0 && c.Policies.Bindings != "" {
		p.add("policies.bindings", "is given, but no policies.dirs")
	}
	if slices.Contains(c.Policies.Dirs, "") {
		p.add("policies.dirs", "a directory must not be empty")
	}
}

// loadPolicies reads what the configuration names, nil when that is nothing.
func (c *Config) loadPolicies(stderr io.Writer) (*bundle, error) {
	if len(c.Policies.Dirs) == 0 {
		return nil, nil //nolint:nilnil // No policies are no error.
	}
	set, err := readPolicies(c.Policies.Dirs)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	b, err := bindPolicies(set, c.Policies.Bindings, nil, stderr)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return b, nil
}

// newLoop returns the loop that evaluates a bundle, nil for none.
func (b *bundle) newLoop(index *aggregate.Index, log *slog.Logger, metrics prometheus.Registerer) (*enforce.Loop, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // No policies, no loop.
	}
	names := make([]string, 0, len(b.bindings))
	for _, x := range b.bindings {
		names = append(names, x.Name)
	}
	log.Info("policies judge the fleet", "policies", len(b.set.Packages), "bindings", strings.Join(names, " "))
	return enforce.New(enforce.Options{Index: index, Set: b.set, Bindings: b.bindings, Logger: log, Metrics: metrics})
}
