package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"federator.dev/federator/cmd/federator/revisions"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
)

// reserveRevisions reserves the first revisions of this process.
func reserveRevisions(ctx context.Context, cfg *config.Config, log *slog.Logger) (*revisions.Keeper, error) {
	store, err := revisionStore(cfg)
	if err != nil {
		return nil, err
	}
	keeper, err := revisions.Reserve(ctx, store, log)
	if errors.Is(err, revisions.ErrPermanent) {
		return nil, fmt.Errorf("%w (policies.namespace names the namespace on the hub; index.revisionsFile names a file, where only this machine serves the fleet)", err)
	}
	return keeper, err
}

// revisionStore returns the store that is shared by all processes with the same readers.
func revisionStore(c *config.Config) (revisions.Store, error) {
	if c.Index.RevisionsFile != "" {
		return revisions.InFile(c.Index.RevisionsFile), nil
	}
	hub, err := fleet.HubConfig(c, userAgent())
	if err != nil {
		return nil, err
	}
	if hub == nil {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, fmt.Errorf("index.revisionsFile: %w", err)
		}
		return revisions.InFile(filepath.Join(dir, "federator", "revisions")), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("revisions: %w", err)
	}
	return revisions.OnHub(hub, c.Policies.Namespace, fmt.Sprintf("%s_%d", host, os.Getpid()))
}
