package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
)

// besideGo compares the shipped rules with the same written by hand in Go.
func besideGo(ctx context.Context, b *bench) ([]row, error) {
	got, err := b.versus(ctx)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("geometric mean of %.0f shipped rules; baseline: the same rules by hand in Go", got["rules"])
	slower := func(ours, theirs string) float64 { return got[ours] / got[theirs] }
	decoded := fmt.Sprintf("%s; of decoded objects, %.1f times as long; topdown takes %.0f ns; goal 6", note, slower("compiled-ns", "go-ns"), got["topdown-ns"])
	stored := fmt.Sprintf("%s, which walk through the stored bytes once, %.1f times as long; goal 2", note, slower("compiled-bytes-ns", "go-bytes-ns"))
	return []row{
		lower("policy/eval_vs_go", "ns", got["compiled-ns"], got["go-ns"], decoded),
		lower("policy/eval_vs_go_bytes", "ns", got["compiled-bytes-ns"], got["go-bytes-ns"], stored),
		lower("policy/eval_vs_go_decoding", "ns", got["compiled-bytes-ns"], got["go-decoding-ns"],
			fmt.Sprintf("the same, but by hand of what a rule reads, decoded from the bytes as ours is, %.1f times as long", slower("compiled-bytes-ns", "go-decoding-ns"))),
	}, nil
}

var metric = regexp.MustCompile(`([\d.]+) (\S+)`)

// versus runs the benchmark of rules beside their package, and returns its means.
func (b *bench) versus(ctx context.Context) (figures, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "BenchmarkShipped", "-benchtime", "1s", "./pkg/policy/internal/versus")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	got := figures{}
	for line := range bytes.Lines(out) {
		b.progress("   %s", bytes.TrimSpace(line))
		if !bytes.HasPrefix(line, []byte("BenchmarkShipped/mean")) {
			continue
		}
		for _, m := range metric.FindAllSubmatch(line, -1) {
			if got[string(m[2])], err = strconv.ParseFloat(string(m[1]), 64); err != nil {
				return nil, err
			}
		}
	}
	if got["rules"] == 0 {
		return nil, errors.New("the benchmark has no means")
	}
	return got, nil
}

// allocations counts what an engine allocates for Pods that violate nothing.
func allocations(ctx context.Context, b *bench) ([]row, error) {
	pods := b.n(20_000)
	var got figures
	if err := b.child(ctx, "policy-allocations", &got, b.corpus, strconv.Itoa(pods)); err != nil {
		return nil, err
	}
	return []row{
		lower("policy/allocations_clean_pod", "allocations", got["pod"], 0, fmt.Sprintf("a Pod and 4 policies that it does not violate, %.2f for each, %d Pods evaluated again; goal under 10", got["pod"]/float64(len(compared)), pods)),
	}, nil
}

// policyAllocations counts allocations of a second pass over clean Pods.
func policyAllocations(ctx context.Context, corpus string, pods int) (figures, error) {
	runtime.GOMAXPROCS(1)
	p, err := newPodSet(corpus, 1, pods)
	if err != nil {
		return nil, err
	}
	for i := range p.bodies {
		if p.bodies[i], err = clean(p.bodies[i]); err != nil {
			return nil, err
		}
	}
	index, _, err := p.fill(ctx)
	if err != nil {
		return nil, err
	}
	// A rule that reads the name, so that no Pod is alike another.
	set, bindings, err := loadRules(compared, "\nviolation contains {\"msg\": \"unnamed\"} if input.ref.name == \"\"\n")
	if err != nil {
		return nil, err
	}
	e, err := newEngine(set, bindings)
	if err != nil {
		return nil, err
	}
	s := index.Snapshot()
	var before, after runtime.MemStats
	for range 2 {
		runtime.ReadMemStats(&before)
		if err := reset(ctx, s, e); err != nil {
			return nil, err
		}
		runtime.ReadMemStats(&after)
	}
	if found, err := violationsOf(e.State()); err != nil || len(found) > 0 {
		return nil, fmt.Errorf("%d violations, %w", len(found), err)
	}
	if stats := e.Stats(); stats.Memoized > 0 || stats.Evaluations < int64(2*pods*len(compared)) {
		return nil, fmt.Errorf("%d evaluations, and %d shared", stats.Evaluations, stats.Memoized)
	}
	return figures{"pod": float64(after.Mallocs-before.Mallocs) / float64(pods)}, nil
}

// clean makes a Pod violate none of the compared policies.
func clean(body []byte) ([]byte, error) {
	var pod map[string]any
	if err := json.Unmarshal(body, &pod); err != nil {
		return nil, err
	}
	meta, _ := pod["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		meta["labels"] = labels
	}
	labels["app"], labels["team"] = "bench", "bench"
	spec, _ := pod["spec"].(map[string]any)
	for _, field := range []string{"containers", "initContainers"} {
		list, _ := spec[field].([]any)
		for _, x := range list {
			c, _ := x.(map[string]any)
			c["image"] = "quay.io/bench/app:1.0"
			c["resources"] = map[string]any{"limits": map[string]any{"memory": "1Gi"}, "requests": map[string]any{"cpu": "1", "memory": "1Gi"}}
			if context, ok := c["securityContext"].(map[string]any); ok {
				delete(context, "privileged")
			}
		}
	}
	return json.Marshal(pod)
}
