package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/notifications"
)

// leaderName is that of the process that leads, in statuses of Notifications: whichever it is goes on from where another was.
const leaderName = "leader"

// notifying returns what sends the transitions that Notifications select. Of processes that have the fleet alone the leader does; of those that
// share it each sends what it has recorded.
func notifying(cfg *config.Config, f *fleet.Fleet, hubREST *rest.Config, loop *enforce.Loop, corrections *enforcement.Enforcement, shared *sharedFleet, log *slog.Logger, metrics prometheus.Registerer) (func(context.Context) error, error) {
	if corrections == nil {
		return component.Idle, nil
	}
	leads := func() bool { _, err := corrections.Lease(); return err == nil }
	opts := notifications.Options{
		Config: hubREST, Namespace: cfg.Policies.Namespace, Name: leaderName, Origin: cfg.Policies.Notify.Origin, Dial: f.Network.Dialer().DialContext,
		Sends: leads, Leads: leads, Notified: corrections.Notified, State: loop.State, Logger: log, Metrics: metrics,
		Facts: func() (notifications.FactSource, error) { return corrections.NewFacts() },
	}
	if h := f.History(); h != nil {
		dir, err := fleet.PersistenceDirectory(cfg)
		if err != nil {
			return nil, err
		}
		opts.History, opts.Directory = h, filepath.Join(dir, "notifications")
	}
	if cfg.Shards.Many() {
		opts.Name, opts.Sends, opts.Others = cfg.Shards.Name, func() bool { return true }, shared.processes
	}
	c, err := notifications.New(opts)
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}
