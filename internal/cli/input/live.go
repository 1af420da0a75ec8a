package input

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

var errNotSynced = errors.New("clusters have not synced in time")

// readClusters connects to clusters until each has synced or been given up on, or until
// the timeout: scopes that are missing then are incomplete.
func (f *Flags) readClusters(ctx context.Context, fs *pflag.FlagSet, required Kinds, stderr io.Writer) (*Fleet, error) {
	cfg, err := f.live.Load(fs, func(c *config.Config) { f.adjust(c, fs, required) })
	if err != nil {
		return nil, err
	}
	log, err := config.NewLogger(stderr, cfg.Log)
	if err != nil {
		return nil, err
	}
	live, err := fleet.New(cfg, fleet.Options{Revisions: aggregate.Block(1), UserAgent: "federator/" + f.Version, Logger: log})
	if err != nil {
		return nil, err
	}
	live.Manager.RequireKinds(required.names())
	failed := make(chan error, 1)
	manager := component.Start(ctx, live.Manager.Run, failed)
	err = f.waitSynced(ctx, live, failed)
	// Before the members are disconnected.
	o := &Fleet{Snapshot: live.Index.Snapshot(), AsOf: time.Now(), members: map[string]clusterinformers.MemberStatus{}}
	o.SourceRevision = o.Revision()
	for _, m := range live.Manager.Members() {
		o.members[m.Name] = m
	}
	if err := errors.Join(err, manager.Stop()); err != nil {
		return nil, err
	}
	if !o.anyReached() {
		return nil, o.errUnreachable()
	}
	return o, nil
}

// adjust adapts a configuration to a command that runs once.
func (f *Flags) adjust(c *config.Config, fs *pflag.FlagSet, required Kinds) {
	if f.hub && !c.Sources.OnHub() {
		c.Sources.ClusterAPI = &config.ClusterAPI{}
	}
	if len(c.Kinds) == 0 {
		c.Kinds = required.rules()
	}
	for _, k := range required.Refs {
		held := slices.ContainsFunc(c.Held, func(h clusterinformers.HeldVersion) bool { return h.Kind == k.Kind })
		if k.Version != "" && !held {
			c.Held = append(c.Held, clusterinformers.HeldVersion{Kind: k.Kind, Version: k.Version})
		}
	}
	if !fs.Changed("give-up-after") {
		c.GiveUpAfter = config.InteractiveGiveUpAfter
	}
	if !fs.Changed("log-level") {
		c.Log.Level = "warn"
	}
	c.KeepSecretValues = false
}

// waitSynced waits until the fleet is ready, or until the timeout of the flags.
func (f *Flags) waitSynced(ctx context.Context, fleet *fleet.Fleet, failed <-chan error) error {
	if f.Timeout == 0 {
		return fleet.WaitReady(ctx, failed)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, errNotSynced)
	defer cancel()
	err := fleet.WaitReady(ctx, failed)
	if errors.Is(err, errNotSynced) {
		return nil
	}
	return err
}
