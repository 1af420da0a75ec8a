package enforcement

import (
	"context"
	"fmt"

	"federator.dev/federator/pkg/hub/externaldocs"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
)

// wireExternal wires what reads documents from outside the fleet.
func (e *Enforcement) wireExternal(opts *Options) (err error) {
	e.configMaps, err = externaldocs.NewConfigMaps(opts.Hub, opts.Namespace, func(name string) { e.External.TriggerConfigMap(name) })
	if err != nil {
		return err
	}
	e.External, err = externaldata.NewManager(externaldata.Options{
		Checkout:  func(source string) externaldata.Checkout { return externaldocs.CheckoutOf(e.Git.State(), source) },
		ConfigMap: e.configMaps.Read, Dial: opts.Git.Dial, Logger: opts.Logger,
	})
	if err != nil {
		return fmt.Errorf("external documents: %w", err)
	}
	return nil
}

// followCommits has documents in git read again when commits become active, and when they were found to be the newest.
func (e *Enforcement) followCommits(ctx context.Context) error {
	for {
		state := e.Git.State()
		e.External.Trigger()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-state.Replaced():
		}
	}
}

// followExternal has policies see the documents as they are.
func (e *Enforcement) followExternal(ctx context.Context) error {
	var last *policy.External
	for {
		state := e.External.State()
		if state.External != last {
			if err := e.Loop.SetExternal(ctx, state.External); err != nil {
				return err
			}
			last = state.External
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-state.Replaced():
		}
	}
}

// documentsWith returns the documents as they would be with a commit.
func (e *Enforcement) documentsWith(c policysource.Candidate) *policy.External {
	return e.External.Beside(e.External.State(), c.Source, externaldata.Checkout{Commit: c.Commit.Hash, Path: c.Commit.Path, Tree: c.Tree, At: c.Commit.Time})
}
