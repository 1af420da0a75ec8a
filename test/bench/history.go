package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/policy"
)

const (
	historyMembers   = 4
	historyPerSecond = 2000 // transitions
	historySeconds   = 15
	historyBytes     = 16 << 20 // segments of an eighth, so that most are sealed at the end
)

// historyCost compares what transitions cost with a history and without: the same changes, commits and verdicts.
func historyCost(ctx context.Context, b *bench) ([]row, error) {
	pods := b.n(5000)
	each, p99 := map[string][]float64{}, map[string][]float64{}
	var last figures
	for range interleaved {
		for _, what := range []string{"history-off", "history-on"} {
			var got figures
			if err := b.child(ctx, what, &got, b.corpus, strconv.Itoa(pods)); err != nil {
				return nil, err
			}
			each[what] = append(each[what], 1e6*got["cpu"]/got["changes"])
			p99[what] = append(p99[what], got["p99"])
			last = got
		}
	}
	on, off := median(each["history-on"]), median(each["history-off"])
	commit, before := median(p99["history-on"]), median(p99["history-off"])
	what := fmt.Sprintf("real pods, each change one of a condition and a phase, at %.0f/s, beside a policy that judges them, %d members x %d pods, median of %d interleaved runs", last["rate"], historyMembers, pods, interleaved)
	return []row{
		lower("history/transition_cost", "µs", on-off, 60, fmt.Sprintf("CPU of a transition (and of %.1f records of it) beyond %.0f without a history; baseline is the goal; by pairs of runs %s; %s", last["records"]/last["changes"], off, spread(each["history-on"], each["history-off"]), what)),
		lower("history/commit_p99", "ms", commit, before, fmt.Sprintf("of a commit; %+.1f %%, goal 5", 100*(commit/before-1))),
		lower("history/bytes", "B", last["bytes"]/last["records"], 200, fmt.Sprintf("on disk of a record, all segments but the last of 2 MiB sealed; baseline is the goal; %.0f records", last["records"])),
	}, nil
}

func historyOn(ctx context.Context, corpus string, pods int) (figures, error) {
	dir, err := os.MkdirTemp("", "federator-bench-history-")
	if err != nil {
		return nil, err
	}
	out, err := transitions(ctx, dir, corpus, pods)
	return out, errors.Join(err, os.RemoveAll(dir))
}

func historyOff(ctx context.Context, corpus string, pods int) (figures, error) {
	return transitions(ctx, "", corpus, pods)
}

const readyRego = `# METADATA
# title: Pods run
# custom: {severity: low, kinds: ["Pod"]}
package bench.running

violation contains {"msg": "it does not run"} if input.object.status.phase == "Failed"
`

// transitions changes pods that a policy judges, and records it in a directory if one is named.
func transitions(ctx context.Context, dir, corpus string, pods int) (out figures, err error) {
	set, err := newPodSet(corpus, historyMembers, pods)
	if err != nil {
		return nil, err
	}
	versions, err := set.failing()
	if err != nil {
		return nil, err
	}
	index, scopes, err := set.fillInto(ctx, aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		return nil, err
	}
	filled, _ := index.Pending(index.Snapshot())
	filled.Release()
	loaded, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(readyRego)}}}}, policy.LoadOptions{})
	if err != nil {
		return nil, err
	}
	loop, err := enforce.New(enforce.Options{Index: index, Set: loaded, Bindings: []policy.Binding{{Name: "running", Package: "bench.running"}}})
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var past *history.History
	if dir != "" {
		if past, err = history.Open(history.Options{Directory: dir, MaxBytes: historyBytes}); err != nil {
			cancel()
			return nil, err
		}
		if err := past.Begin(index); err != nil {
			cancel()
			return nil, err
		}
		running.Go(func() { err = errors.Join(err, past.Run(inner)) })
		running.Go(func() { _ = past.FollowVerdicts(inner, loop) }) // its only error here is the context's
	}
	running.Go(func() { _ = loop.Run(inner) }) // as above
	running.Go(func() { showing(inner, index, past) })
	out, failed := changePods(inner, set, scopes, versions)
	if past != nil && failed == nil {
		failed = settled(inner, past)
		span := past.Span()
		out["records"], out["bytes"] = float64(span.Last), float64(span.Bytes)
	}
	cancel()
	running.Wait()
	return out, errors.Join(err, failed)
}

// settled waits until nothing is sealed any more.
func settled(ctx context.Context, past *history.History) error {
	for bytes := past.Span().Bytes; ; {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		now := past.Span().Bytes
		if now == bytes {
			return nil
		}
		bytes = now
	}
}

// showing shows what is committed to readers, once it is recorded where there is a history.
func showing(ctx context.Context, index *aggregate.Index, past *history.History) {
	for last := index.Snapshot(); ; {
		pending, more := index.Pending(last)
		if last = pending.Snapshot(); past != nil {
			past.Wait(ctx, last.Revision())
		}
		pending.Release()
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// failing returns two bodies for each of the set's: as it is, and with another phase and condition.
func (s *podSet) failing() (versions [][2][]byte, err error) {
	for _, body := range s.bodies {
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil {
			return nil, err
		}
		status, _ := m["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
			m["status"] = status
		}
		status["phase"] = "Failed"
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Ready" {
				c["status"], c["lastTransitionTime"] = "False", "2026-11-30T08:00:00Z"
			}
		}
		failed, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		versions = append(versions, [2][]byte{body, failed})
	}
	return versions, nil
}

// changePods commits one change after another.
func changePods(ctx context.Context, set *podSet, scopes []*aggregate.Scope, versions [][2][]byte) (figures, error) {
	tick, err := newTicks(time.Second / historyPerSecond)
	if err != nil {
		return nil, err
	}
	changes := historyPerSecond * historySeconds
	commits := make([]time.Duration, 0, changes)
	cpu, started := cpuTime(), time.Now()
	var rec aggregate.Record
	for n := range changes {
		if err := errors.Join(tick.wait(), ctx.Err()); err != nil {
			return nil, errors.Join(err, tick.close())
		}
		m, i := n%set.members, n/set.members%set.perMember
		round := n / (set.members * set.perMember)
		set.record(&rec, m, i, set.perMember+n+1)
		rec.Update = true
		rec.Body = versions[(m*set.perMember+i)%len(versions)][(round+1)%2]
		item := scopes[m].Item(&rec)
		at := time.Now()
		scopes[m].Upsert(item)
		if _, err := scopes[m].Commit(); err != nil {
			return nil, errors.Join(err, tick.close())
		}
		commits = append(commits, time.Since(at))
	}
	seconds := time.Since(started).Seconds()
	out := figures{"changes": float64(changes), "cpu": (cpuTime() - cpu).Seconds(), "rate": float64(changes) / seconds, "p99": ms(commits, 0.99)}
	return out, tick.close()
}
