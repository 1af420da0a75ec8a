package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const fullMembers = 20

// fullEvaluation measures the evaluation of ten policies on all pods of a large fleet.
func fullEvaluation(ctx context.Context, b *bench) ([]row, error) {
	pods := b.n(470_000)
	var got figures
	if err := b.child(ctx, "policy-full", &got, b.corpus, strconv.Itoa(pods)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%.0f pods x %d policies on %.0f cores, GOGC=%d; %.0f CPU-s, %.0f violations of %.0f pairs", got["pods"], len(compared)+len(more), got["cores"], gcPercent, got["seconds-cpu"], got["violations"], got["pairs"])
	return []row{
		{Name: "policy/full_reevaluation", Unit: "s", Value: got["seconds"], Note: note + "; goal under 60"},
		{Name: "policy/full_reevaluation_each", Unit: "s", Value: got["each"], Note: fmt.Sprintf("policies that read the name too, so that every verdict is evaluated; %.0f CPU-s", got["each-cpu"])},
		{Name: "policy/full_reevaluation_one", Unit: "s", Value: got["one"], Note: "Configure with one changed policy of the ten"},
		{Name: "policy/full_reevaluation_peak", Unit: "MiB", Value: got["peak"] / mib, Note: fmt.Sprintf("heap above that of the index, %.0f MiB; %.0f MiB live afterwards", got["index"]/mib, got["live"]/mib)},
		{Name: "policy/bytes_per_clean_pair", Unit: "B", Value: got["clean"], Note: "heap of a pair that reads its own object and finds nothing; goal 8"},
		{Name: "policy/bytes_per_finding", Unit: "B", Value: got["finding"], Note: "heap of a pair that has violations"},
	}, nil
}

// peak samples the heap until it is stopped.
type peak struct {
	stop chan struct{}
	done sync.WaitGroup
	most uint64
}

func watchPeak() *peak {
	p := &peak{stop: make(chan struct{})}
	p.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			metrics.Read(sample)
			p.most = max(p.most, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-p.stop:
				return
			}
		}
	})
	return p
}

func (p *peak) end() float64 {
	close(p.stop)
	p.done.Wait()
	return float64(p.most)
}

func policyFull(ctx context.Context, corpus string, pods int) (figures, error) {
	debug.SetGCPercent(gcPercent)
	set, err := newPodSet(corpus, fullMembers, max(pods/fullMembers, 1))
	if err != nil {
		return nil, err
	}
	index, scopes, err := set.fill(ctx)
	if err != nil {
		return nil, err
	}
	set.bodies = nil
	s := index.Snapshot()
	total := float64(set.members * set.perMember)
	out := figures{"pods": total, "cores": float64(runtime.GOMAXPROCS(0))}
	if err := fullClean(ctx, s, out); err != nil {
		return nil, err
	}
	if err := fullReset(ctx, s, "each", "\nviolation contains {\"msg\": \"unnamed\"} if input.ref.name == \"\"\n", out); err != nil {
		return nil, err
	}
	if err := fullReset(ctx, s, "seconds", "", out); err != nil {
		return nil, err
	}
	runtime.KeepAlive(scopes)
	return out, nil
}

// running gives an engine its goroutines as long as f runs.
func running(ctx context.Context, e *policy.Engine, f func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = e.Run(inner) }) //nolint:errcheck // It ends with the context.
	return f(ctx)
}

// fullReset evaluates everything, and then one policy that changed.
func fullReset(ctx context.Context, s *aggregate.Snapshot, name, extra string, out figures) error {
	rules := slices.Concat(compared, more)
	set, bindings, err := loadRules(rules, extra)
	if err != nil {
		return err
	}
	before := heap()
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Limits: policy.Limits{Evaluation: time.Minute}})
	if err != nil {
		return err
	}
	return running(ctx, e, func(ctx context.Context) error {
		p := watchPeak()
		started, cpu := time.Now(), cpuTime()
		if err := reset(ctx, s, e); err != nil {
			return err
		}
		out[name], out[name+"-cpu"] = time.Since(started).Seconds(), (cpuTime() - cpu).Seconds()
		most := p.end()
		if extra != "" {
			return nil
		}
		out["peak"], out["index"] = most-before, before
		out["live"] = heap() - before
		findings := 0.0
		for _, b := range bindings {
			t := e.State().Total(b.Name)
			out["violations"] += float64(t.Violations)
			out["pairs"] += float64(t.Known + t.Unknown + t.Errors)
			if t.Errors > 0 {
				return fmt.Errorf("%s: %d errors", b.Name, t.Errors)
			}
			for range e.State().Findings(b.Name, "") {
				findings++
			}
		}
		if out["pairs"] != out["pods"]*float64(len(rules)) {
			return fmt.Errorf("%v verdicts on %v pods by %d policies", out["pairs"], out["pods"], len(rules))
		}
		out["finding"] = out["live"] / findings
		rules[0].text = strings.ReplaceAll(rules[0].text, "is not allowed", "is forbidden")
		changed, bindings, err := loadRules(rules, extra)
		if err != nil {
			return err
		}
		started = time.Now()
		if _, err := e.Configure(ctx, changed, bindings); err != nil {
			return err
		}
		out["one"] = time.Since(started).Seconds()
		return nil
	})
}

// fullClean holds pairs that find nothing.
func fullClean(ctx context.Context, s *aggregate.Snapshot, out figures) error {
	set, bindings, err := loadRules([]rule{{"clean", "", "", nil, `
violation contains {"msg": "never"} if input.object.spec.hostNetwork == "yes"
`}}, "")
	if err != nil {
		return err
	}
	before := heap()
	e, err := newEngine(set, bindings)
	if err != nil {
		return err
	}
	if err := reset(ctx, s, e); err != nil {
		return err
	}
	out["clean"] = (heap() - before) / out["pods"]
	if t := e.State().Total("clean"); t.Known != int(out["pods"]) || t.Violations != 0 {
		return fmt.Errorf("pairs that find nothing: %+v", t)
	}
	runtime.KeepAlive(e)
	return nil
}
