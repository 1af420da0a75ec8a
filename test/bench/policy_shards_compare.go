package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

func policyShards(ctx context.Context, corpus string, objects int) (figures, error) {
	set, bindings, err := shippedTwenty()
	if err != nil {
		return nil, err
	}
	s, err := newAppSet(ctx, corpus, objects, mixed, kindsOf(set))
	if err != nil {
		return nil, err
	}
	out := figures{}
	f, err := newShared(ctx, s.index.Snapshot(), set, bindings, out)
	if err != nil {
		return nil, err
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1})
	if err != nil {
		return nil, err
	}
	if err := reset(ctx, s.index.Snapshot(), e); err != nil {
		return nil, err
	}
	one := &shard{own: s.index, engine: e, at: [2]*aggregate.Cursor{s.index.Cursor(s.index.Snapshot())}}
	c := &comparison{s: s, one: one, f: f, random: rand.New(rand.NewPCG(1, 1))} // the same deltas in every run
	for _, atOnce := range []int{1, shardBatch} {
		suffix := ""
		if atOnce > 1 {
			suffix = "-batch"
		}
		if err := c.run(ctx, atOnce, out, suffix); err != nil {
			return nil, err
		}
	}
	return out, sameFindings(e.State(), f, bindings)
}

// comparison has the same changes made in one process and in those that share the fleet.
type comparison struct {
	s      *appSet
	one    *shard
	f      *shared
	random *rand.Rand
	n      int // changes made
}

// run makes shardDeltas changes, some at once.
func (c *comparison) run(ctx context.Context, atOnce int, out figures, suffix string) error {
	var alone, together time.Duration
	changes := make([]change, atOnce)
	for range shardDeltas / atOnce {
		took, err := c.alone(ctx, changes)
		if err != nil {
			return err
		}
		alone += took
		for i := range changes {
			o, _ := c.s.index.Snapshot().Get(changes[i].ref)
			if changes[i].rec, err = recordOf(o); err != nil {
				return err
			}
			changes[i].rec.Update = true
		}
		started := cpuTime()
		told, err := c.f.change(ctx, changes)
		if err != nil {
			return err
		}
		together += cpuTime() - started
		out["told"+suffix] += float64(told) / shardDeltas
	}
	out["one"+suffix], out["shards"+suffix] = float64(alone.Nanoseconds())/1e3/shardDeltas, float64(together.Nanoseconds())/1e3/shardDeltas
	return nil
}

// alone makes changes in the one process, and returns the CPU time that this takes.
func (c *comparison) alone(ctx context.Context, changes []change) (time.Duration, error) {
	started := cpuTime()
	touched := map[*aggregate.Scope]bool{}
	for i := range changes {
		kind := pod
		switch c.n % 20 {
		case 1, 3, 5:
			kind = deployment
		case 7:
			kind = ingress
		}
		m := c.random.IntN(appMembers)
		n := c.random.IntN(c.s.counts[kind])
		w := c.s.scopes[kind][m]
		w.Upsert(c.s.item(kind, m, n, c.n+1, c.n%2 == 0))
		touched[w] = true
		c.n++
		changes[i].ref = aggregate.Ref{Member: c.s.member(m), Kind: kind, Namespace: namespaceOf(n), Name: nameOf(kind, m, n)}
	}
	if err := commitAll(touched); err != nil {
		return 0, err
	}
	_, err := c.one.apply(ctx)
	return cpuTime() - started, err
}

// sameFindings refuses figures of processes that do not find the same.
func sameFindings(one *policy.State, f *shared, bindings []policy.Binding) error {
	for _, b := range bindings {
		want, got := one.Total(b.Name), policy.Counts{}
		for _, s := range f.shards {
			got.Add(s.engine.State().Total(b.Name))
		}
		if want != got {
			return fmt.Errorf("%s: %d processes have %+v, one has %+v", b.Name, shardCount, got, want)
		}
	}
	return nil
}
