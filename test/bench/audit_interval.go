package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

// auditIntervals measures how long scopes go without an audit where the budget is the default, and all
// kinds of a large fleet are audited, pods in the first tier. Time that is scaled is so for intervals, budgets and
// bookmarks alike.
func auditIntervals(ctx context.Context, b *bench) (rows []row, err error) {
	const members, watched = 20, auditInterval + time.Minute
	scale := float64(watched) / float64(b.audits)
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / scale) }
	pods, nodes := b.n(23_500), b.n(160)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", strconv.Itoa(nodes),
		"--bookmark", scaled(time.Minute).String(), "--churn", "50")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	specs, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := followAs(ctx, followOptions{required: []aggregate.Kind{"Pod"}, audit: clusterinformers.Audit{
		Interval: scaled(auditInterval), FirstTier: scaled(auditFirstTier),
		RequestsPerSecond: 2 * scale, FleetRequestsPerSecond: 200 * scale, BytesPerSecond: int64(scale * (1 << 20)),
	}}, specs)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := f.synced(ctx, members*pods); err != nil {
		return nil, err
	}
	oldest, cpu, scopes, err := f.oldest(ctx, b.audits)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d pods + %d nodes, %d members, %d scopes, default budget; %.0f %% of a core, at that speed", members*pods, members*nodes, members, scopes, 100*cpu/b.audits.Seconds())
	if scale != 1 {
		note += fmt.Sprintf("; in %v, with intervals divided and budgets multiplied by %.1f", b.audits, scale)
	}
	return []row{
		{Name: "audit/interval_first_tier", Unit: "s", Value: oldest[0].Seconds() * scale, Note: "longest that a scope was not proved, pods among them; goal 120; " + note},
		{Name: "audit/interval", Unit: "s", Value: oldest[1].Seconds() * scale, Note: "the same of all; goal 900"},
	}, nil
}

// oldest watches, for a while, how long ago scopes were proved: at most in the first tier, and in any.
func (f *follower) oldest(ctx context.Context, d time.Duration) (oldest [2]time.Duration, cpu float64, scopes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before := cpuTime()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = ctx.Err()
			}
			return oldest, (cpuTime() - before).Seconds(), scopes, err
		}
		scopes = 0
		for _, m := range f.manager.Members() {
			scopes += len(m.Details)
			if m.Audit != nil {
				oldest[0], oldest[1] = max(oldest[0], m.Audit.OldestFirstTier), max(oldest[1], m.Audit.Oldest)
			}
		}
	}
}
