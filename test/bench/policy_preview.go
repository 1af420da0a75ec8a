package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

const (
	previewRounds = 10
	previewDeltas = 300 // of a round, half of them while a preview is under way
	previewPause  = 5 * time.Millisecond
)

// previews measures what a preview does to the verdicts of the active policies, and what it takes.
func previews(ctx context.Context, b *bench) ([]row, error) {
	objects := b.n(100_000)
	var got figures
	if err := b.child(ctx, "policy-preview", &got, b.corpus, strconv.Itoa(objects)); err != nil {
		return nil, err
	}
	return []row{
		lower("policy/preview_latency", "µs p50", got["with"], got["without"], fmt.Sprintf("from a commit to its verdict while a preview is under way, beside none, turn by turn in one run; p95 %.0f beside %.0f; %d objects, a delta every %v; goal at most 1.1 times as long", got["with95"], got["without95"], objects, previewPause)),
		lower("policy/preview_cost", "s", got["preview"], got["compare"], fmt.Sprintf("a preview of 2 policies on %d objects, on one processor, beside evaluating them again on one; %.0f MiB are kept meanwhile beside %.0f", objects, got["previewHeap"]/mib, got["compareHeap"]/mib)),
	}, nil
}

// candidateSet is the active set with another rule in each policy.
func candidateSet(active *policy.Set) (*policy.Set, error) {
	src := active.Sources()[0]
	src.Files = slices.Clone(src.Files)
	for i, f := range src.Files {
		if slices.ContainsFunc(keyed, func(name string) bool { return src.Name+"/"+f.Path == active.Package(name).File }) {
			src.Files[i].Data = append(slices.Clone(f.Data), "\nviolation contains {\"msg\": \"is named never\"} if input.ref.name == \"never\"\n"...)
		}
	}
	return policy.Load(policy.Replace(active, src), policy.LoadOptions{})
}

func policyPreview(ctx context.Context, corpus string, objects int) (figures, error) {
	active, bindings, kinds, err := flatSet()
	if err != nil {
		return nil, err
	}
	candidate, err := candidateSet(active)
	if err != nil {
		return nil, err
	}
	s, err := newAppSet(ctx, corpus, objects, map[aggregate.Kind]int{deployment: 50, ingress: 50}, kinds)
	if err != nil {
		return nil, err
	}
	seen := make(chan aggregate.Revision, 1024)
	loop, err := enforce.New(enforce.Options{
		Index: s.index, Set: active, Bindings: bindings, Limits: policy.Limits{Evaluation: time.Minute},
		Changed: func(c *policy.Changes, _ *aggregate.Batch) { seen <- c.After.Snapshot.Revision() },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	defer func() { <-done }()
	defer cancel()
	<-seen // everything is evaluated
	out := figures{}
	if err := previewCosts(ctx, loop, candidate, bindings, out); err != nil {
		return nil, err
	}
	d, err := s.dependents()
	if err != nil {
		return nil, err
	}
	w := &flatWriter{s: s, d: d, random: rand.New(rand.NewPCG(1, 1))}
	took := map[bool][]time.Duration{}
	round := 0
	for turn := range 2 * previewRounds {
		with := turn%2 == 1
		end := func() error { return nil }
		if with {
			end = keepPreviewing(ctx, loop, candidate, bindings)
		}
		for range previewDeltas / 2 {
			time.Sleep(previewPause)
			started := time.Now()
			if _, err := w.change(round); err != nil {
				return nil, errors.Join(err, end())
			}
			round++
			for at := s.index.Snapshot().Revision(); <-seen < at; {
			}
			took[with] = append(took[with], time.Since(started))
		}
		if err := end(); err != nil {
			return nil, err
		}
	}
	for with, name := range map[bool]string{true: "with", false: "without"} {
		slices.Sort(took[with])
		out[name] = float64(took[with][len(took[with])/2].Microseconds())
		out[name+"95"] = float64(took[with][len(took[with])*95/100].Microseconds())
	}
	return out, nil
}

// preview runs one to its end.
func preview(ctx context.Context, loop *enforce.Loop, set *policy.Set, bindings []policy.Binding) (*policy.Preview, error) {
	p, err := loop.NewPreview(loop.State(), set, bindings)
	if err != nil {
		return nil, err
	}
	return p, p.Run(ctx, policy.PreviewOptions{
		Wait: loop.Idle, MaxBytes: 1 << 30, Found: func(_, _ *policy.Verdict) error { return nil },
	})
}

// keepPreviewing runs one preview after another until end is called.
func keepPreviewing(ctx context.Context, loop *enforce.Loop, set *policy.Set, bindings []policy.Binding) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := preview(ctx, loop, set, bindings); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() error {
		cancel()
		return <-done
	}
}

// previewCosts compares a preview with an evaluation that keeps its verdicts and reads.
func previewCosts(ctx context.Context, loop *enforce.Loop, set *policy.Set, bindings []policy.Binding, out figures) error {
	before := heap()
	started := time.Now()
	p, err := preview(ctx, loop, set, bindings)
	if err != nil {
		return err
	}
	out["preview"] = time.Since(started).Seconds()
	out["previewHeap"] = heap() - before
	if costs, _ := p.Costs(); costs[keyed[0]].Evaluations == 0 {
		return errors.New("the preview has evaluated nothing")
	}
	before = heap()
	started = time.Now()
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1, Limits: policy.Limits{Evaluation: time.Minute}})
	if err != nil {
		return err
	}
	if _, err := e.Reset(ctx, loop.State().Snapshot, nil); err != nil {
		return err
	}
	out["compare"] = time.Since(started).Seconds()
	out["compareHeap"] = heap() - before
	if e.State() == nil {
		return errors.New("nothing was evaluated")
	}
	return nil
}
