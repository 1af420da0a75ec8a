package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/tracing"
	"federator.dev/federator/test/otlp"
)

// receiverVariable is the environment variable that tells a child where traces go.
const receiverVariable = "BENCH_TRACES"

// traces measures what tracing costs beside ingest and verdicts, off and at the default rate, and off once more, which
// says how far equal runs differ; and what a change costs by itself.
func traces(ctx context.Context, b *bench) (rows []row, err error) {
	receiver, stopReceiver, err := otlp.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer stopReceiver()
	if err := os.Setenv(receiverVariable, receiver.Endpoint); err != nil {
		return nil, err
	}
	const members, perSecond = 4, 2000
	pods := b.n(1000)
	kubeconfig, stop, err := b.simfleet(ctx, "--members", strconv.Itoa(members), "--pods", strconv.Itoa(pods), "--nodes", "10", "--churn", strconv.Itoa(perSecond))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	sides := []string{"trace-off", "trace-on", "trace-again"}
	each, rate := map[string][]float64{}, map[string][]float64{}
	for n := range interleaved {
		for i := range sides { // none is always the first
			side := sides[(i+n)%len(sides)]
			var got figures
			if err := b.child(ctx, side, &got, kubeconfig, strconv.Itoa(members*pods)); err != nil {
				return nil, err
			}
			each[side] = append(each[side], 1e6*got["cpu"]/got["events"])
			rate[side] = append(rate[side], got["events"]/got["seconds"])
		}
	}
	off, on, again := median(each["trace-off"]), median(each["trace-on"]), median(each["trace-again"])
	what := fmt.Sprintf("CPU of a change, read and judged by twenty policies of the library, at %.0f/s, median of %d interleaved runs", median(rate["trace-off"]), interleaved)
	rows = append(rows,
		lower("trace/off", "µs", again, off, fmt.Sprintf("%s; off twice: %+.1f %%, by pairs %s", what, 100*(again/off-1), spread(each["trace-again"], each["trace-off"]))),
		lower("trace/on", "µs", on, off, fmt.Sprintf("%s, sampling %g beside off: %+.1f %%, by pairs %s; %d spans were received; goal 1 %%", what, config.Default().Traces.Sampling, 100*(on/off-1), spread(each["trace-on"], each["trace-off"]), len(receiver.Spans()))),
	)
	alone, err := traceAlone(ctx, receiver.Endpoint)
	if err != nil {
		return rows, err
	}
	return append(rows,
		lower("trace/change_off", "ns", alone.off, 0, "a change by itself: stamps, decision and sending, with a nil tracer"),
		lower("trace/change_on", "ns", alone.on, 0, fmt.Sprintf("the same at the default rate, in batches of one: %.2f %% of what it costs", alone.on/10/off)),
	), nil
}

// newBenchTracer returns a tracer at the default rate.
func newBenchTracer(ctx context.Context, endpoint string) (*tracing.Tracer, error) {
	exporter, err := tracing.NewExporter(ctx, tracing.Receiver{Endpoint: endpoint, Insecure: true})
	if err != nil {
		return nil, err
	}
	defaults := config.Default().Traces
	return tracing.New(tracing.Options{Exporter: exporter, Installation: "bench", Sampling: defaults.Sampling, Slow: defaults.Slow, Judged: true})
}

func traceOff(ctx context.Context, kubeconfig string, pods int) (figures, error) {
	return traceIn(ctx, kubeconfig, pods, nil)
}

func traceOn(ctx context.Context, kubeconfig string, pods int) (out figures, err error) {
	t, err := newBenchTracer(ctx, os.Getenv(receiverVariable))
	if err != nil {
		return nil, err
	}
	sending, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = t.Run(sending) }) // its only error is the context's
	defer wg.Wait()
	defer end()
	return traceIn(ctx, kubeconfig, pods, t)
}

// traceIn follows members, and judges what they have.
func traceIn(ctx context.Context, kubeconfig string, pods int, t *tracing.Tracer) (figures, error) {
	members, err := readContexts(kubeconfig)
	if err != nil {
		return nil, err
	}
	set, bindings, err := shippedTwenty()
	if err != nil {
		return nil, err
	}
	f, err := followAs(ctx, followOptions{tracer: t}, members, "Pod")
	if err != nil {
		return nil, err
	}
	defer f.stop()
	if err := errors.Join(f.synced(ctx, pods), f.trained(ctx)); err != nil {
		return nil, err
	}
	loop, err := enforce.New(enforce.Options{Index: f.index, Set: set, Bindings: bindings, Tracer: t})
	if err != nil {
		return nil, err
	}
	judging, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = loop.Run(judging) }) // its only error is the context's
	defer wg.Wait()
	defer end()
	if err := poll(ctx, time.Minute, func() bool { return loop.State() != nil }); err != nil {
		return nil, err
	}
	return window(ctx, func() float64 { return float64(loop.State().Snapshot.Changes()) })
}

// alone are the costs of a change by itself, in nanoseconds.
type alone struct{ off, on float64 }

func traceAlone(ctx context.Context, endpoint string) (out alone, err error) {
	t, err := newBenchTracer(ctx, endpoint)
	if err != nil {
		return out, err
	}
	sending, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = t.Run(sending) }) // its only error is the context's
	defer wg.Wait()
	defer end()
	var off, on []float64
	for range interleaved {
		off, on = append(off, changesOf(nil)), append(on, changesOf(t))
	}
	return alone{median(off), median(on)}, nil
}

// changesOf returns the CPU time of a change, in nanoseconds, with what is sent of it.
func changesOf(t *tracing.Tracer) float64 {
	const n = 1_000_000
	revision := uint64(time.Now().UnixNano()) // no change is traced twice
	commit := tracing.Commit{Member: "bench/member-0", Kind: "Pod", Changes: 1}
	stamps := []tracing.Stamp{{Namespace: "default", Name: "pod", Version: "1", Position: 1}}
	stamped := slices.Clone(stamps)
	cpu := cpuTime()
	for range n {
		revision++
		if t != nil {
			now := tracing.At(time.Now())
			copy(stamped, stamps)
			stamped[0].Read, stamped[0].Began, stamped[0].Decoded = now, now, now
			commit.Revision, commit.At = revision, now
		}
		t.Committed(&commit, stamped)
		t.Evaluated(tracing.Batch{Before: revision - 1, After: revision, Started: commit.At, Published: commit.At})
	}
	return float64((cpuTime() - cpu).Nanoseconds()) / n
}
