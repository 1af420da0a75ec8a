package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// interleaved is how often each side of a comparison of CPU times is run, in turn.
const interleaved = 5

// visibilityWindow is for how long delays are taken.
const visibilityWindow = 5 * time.Second

// commitCost compares what events cost with an index that is kept on disk, and with one that is not, and
// when they are visible.
func commitCost(ctx context.Context, b *bench) (rows []row, err error) {
	for _, perSecond := range []int{500, 4000} {
		got, err := b.commitsAt(ctx, perSecond)
		if err != nil {
			return rows, err
		}
		kept, bare := got["commit-kept"], got["commit-bare"]
		what := fmt.Sprintf("pod updates at %.0f/s, 20 members, median of %d interleaved runs", median(kept["rate"]), interleaved)
		cost, was := median(kept["each"]), median(bare["each"])
		seen, before := median(kept["p99"]), median(bare["p99"])
		rows = append(rows,
			lower(fmt.Sprintf("restart/commit_cost %d/s", perSecond), "µs", cost, was, fmt.Sprintf("CPU of an event, %s; %+.1f %%, by pairs of runs %s; goal 5", what, 100*(cost/was-1), spread(kept["each"], bare["each"]))),
			higher(fmt.Sprintf("restart/commit_events %d/s", perSecond), "events/CPU-s", 1e6/cost, 1e6/was, "the same"),
			lower(fmt.Sprintf("restart/visibility_p99 %d/s", perSecond), "ms", seen, before, fmt.Sprintf("from the member's change to a snapshot; %+.1f ms, goal 5; p50 %.2f, without %.2f", seen-before, median(kept["p50"]), median(bare["p50"]))),
		)
	}
	return rows, nil
}

// spread says by how many percent each pair differs.
func spread(a, b []float64) (text string) {
	for n := range min(len(a), len(b)) {
		text += fmt.Sprintf(" %+.0f", 100*(a[n]/b[n]-1))
	}
	return text[min(len(text), 1):]
}

// commitsAt measures both sides in turn.
func (b *bench) commitsAt(ctx context.Context, perSecond int) (out map[string]map[string][]float64, err error) {
	const members = 20
	pods := b.n(1000)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", "10", "--churn", strconv.Itoa(perSecond), "--stamp")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	out = map[string]map[string][]float64{"commit-kept": {}, "commit-bare": {}}
	for range interleaved {
		for _, what := range []string{"commit-bare", "commit-kept"} {
			var got figures
			if err := b.child(ctx, what, &got, kubeconfig, strconv.Itoa(members*pods)); err != nil {
				return nil, err
			}
			for name, v := range map[string]float64{"each": 1e6 * got["cpu"] / got["events"], "rate": got["events"] / got["seconds"], "p50": got["p50"], "p99": got["p99"]} {
				out[what][name] = append(out[what][name], v)
			}
		}
	}
	return out, nil
}

func commitKept(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	dir, err := os.MkdirTemp("", "federator-bench-kept-")
	if err != nil {
		return nil, err
	}
	out, err := commitsIn(ctx, dir, kubeconfig, pods)
	return out, errors.Join(err, os.RemoveAll(dir))
}

func commitBare(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	return commitsIn(ctx, "", kubeconfig, pods)
}

// commitsIn follows members, with the index in a directory if one is named.
func commitsIn(ctx context.Context, dir, kubeconfig string, pods int) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	f, err := followAs(ctx, followOptions{dir: dir}, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	out, err := window(ctx, func() float64 { return float64(f.index.Newest().Changes()) })
	if err != nil {
		return nil, err
	}
	seen, err := delays(ctx, f.index, visibilityWindow)
	if err != nil {
		return nil, err
	}
	out["p50"], out["p99"] = ms(seen, 0.5), ms(seen, 0.99)
	return out, nil
}
