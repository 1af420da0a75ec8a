package fleet

import (
	"context"
	"path/filepath"
	"time"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
)

// historyDir is where the history is kept, in the directory of the index.
const historyDir = "history"

// openHistory opens what is kept of what happened. A history that cannot be opened is no reason not to serve.
func (k *keeper) openHistory(cfg *config.Config, directory string, key []byte, read func(aggregate.Kind) bool, opts Options) {
	at := filepath.Join(directory, historyDir)
	if cfg.History.Off {
		k.suspendHistory(at)
		return
	}
	h, err := history.Open(history.Options{
		Directory: at, Key: key, MaxBytes: cfg.History.MaxBytes, MaxAge: cfg.History.MaxAge, Kinds: cfg.History.Kinds, Read: read,
		Trace: func(memberUID string, kind aggregate.Kind, at aggregate.Revision) string {
			if id, on := opts.Tracer.TraceOf(memberUID, string(kind), uint64(at)); on {
				return id.String()
			}
			return ""
		},
		Log: opts.Logger, Metrics: opts.Metrics,
	})
	if err != nil {
		k.log.Error("what happens is not recorded", "error", err)
		k.suspendHistory(at)
		return
	}
	k.history = h
}

// suspendHistory notes that nothing is recorded from now on.
func (k *keeper) suspendHistory(directory string) {
	if err := history.Suspend(directory, time.Now()); err != nil {
		k.log.Error("if what happens is recorded again, it will not be said what is missing", "error", err)
	}
}

// beginHistory says that what is committed from now on is to be recorded.
func (k *keeper) beginHistory(x *aggregate.Index) {
	if k.history == nil {
		return
	}
	if err := k.history.Begin(x); err != nil {
		k.log.Error("what was recorded before the restart cannot be read: some of it may be recorded twice", "error", err)
	}
}

// ahead waits until what is committed is recorded, so that what is kept is never ahead of its history.
func (k *keeper) ahead(ctx context.Context, at aggregate.Revision) {
	if k.history != nil {
		k.history.Wait(ctx, at)
	}
}

// History returns what happened, nil where it is not kept.
func (f *Fleet) History() *history.History {
	if f.keeper == nil {
		return nil
	}
	return f.keeper.history
}

// FollowVerdicts records what becomes of verdicts until ctx is done.
func (f *Fleet) FollowVerdicts(ctx context.Context, loop *enforce.Loop) error {
	h := f.History()
	if h == nil || loop == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := h.FollowVerdicts(ctx, loop); err != nil && ctx.Err() == nil {
		f.keeper.log.Error("what becomes of verdicts is not recorded any more", "error", err) // no reason not to serve
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
