package main

import (
	"context"
	"log/slog"
	"time"

	"federator.dev/federator/pkg/remediate"
)

const (
	collectEvery = time.Hour
	leadEvery    = time.Second // how often a follower looks whether it leads
)

// records deletes Actions that ended long ago, where this process acts.
type records struct {
	journal   *remediate.HubJournal
	retention time.Duration
	keep      int // of the newest, anyhow
	lead      func() bool
	log       *slog.Logger
}

// run collects when the process comes to lead and every hour from then on, until the
// context ends.
func (r records) run(ctx context.Context) error {
	timer := time.NewTimer(leadEvery)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		timer.Reset(leadEvery)
		if !r.lead() {
			last = time.Time{}
			continue
		}
		if time.Since(last) < collectEvery {
			continue
		}
		last = time.Now()
		n, err := r.journal.Collect(ctx, r.retention, r.keep)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.log.Error("old actions are not all deleted", "deleted", n, "err", err)
		case n > 0:
			r.log.Info("old actions are deleted", "deleted", n, "retention", r.retention)
		}
	}
}
