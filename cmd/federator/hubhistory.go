package main

import (
	"context"
	"iter"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/transitions"
)

// recording returns what records in the history what does not follow from commits: verdicts and, where policies are the hub's, what becomes of its
// objects. Of processes that have the fleet alone each records all of these, as it answers for itself; of those that share it the leader does.
func recording(cfg *config.Config, f *fleet.Fleet, hubREST *rest.Config, loop *enforce.Loop, corrections *enforcement.Enforcement, log *slog.Logger) (func(context.Context) error, error) {
	verdicts := func(ctx context.Context) error { return f.FollowVerdicts(ctx, loop) }
	if corrections == nil || f.History() == nil {
		return verdicts, nil
	}
	opts := transitions.Options{Config: hubREST, Namespace: cfg.Policies.Namespace, Log: f.History(), Logger: log}
	if cfg.Shards.Many() {
		opts.Leads = func() bool { _, err := corrections.Lease(); return err == nil }
		opts.Members = func() iter.Seq[string] {
			return func(yield func(string) bool) {
				for m := range f.Index.Snapshot().Members() {
					if !yield(m.Name) {
						return
					}
				}
			}
		}
	}
	recorder, err := transitions.New(opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var running sync.WaitGroup
		for _, run := range []func(context.Context) error{verdicts, recorder.Run} {
			running.Go(func() { cancel(run(ctx)) }) // the first to end ends the other
		}
		running.Wait()
		return context.Cause(ctx)
	}, nil
}
