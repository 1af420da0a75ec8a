package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"text/tabwriter"
	"time"
)

// row is one figure.
type row struct {
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Baseline float64 `json:"baseline,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"` // how many times better than the baseline
	Note     string  `json:"note,omitempty"`
}

// lower makes a row of a figure that is the better the lower it is.
func lower(name, unit string, value, baseline float64, note string) row {
	r := row{Name: name, Unit: unit, Value: value, Baseline: baseline, Note: note}
	if value > 0 && baseline > 0 {
		r.Ratio = baseline / value
	}
	return r
}

// higher makes a row of a figure that is the better the higher it is.
func higher(name, unit string, value, baseline float64, note string) row {
	r := row{Name: name, Unit: unit, Value: value, Baseline: baseline, Note: note}
	if baseline > 0 {
		r.Ratio = value / baseline
	}
	return r
}

// benchmark measures what its name begins with.
type benchmark struct {
	name  string
	run   func(context.Context, *bench) ([]row, error)
	apart bool // only measured when -run names it
}

var benchmarks = []benchmark{
	{name: "index/bytes_per_pod,index/accounted_ratio", run: bytesPerPod},
	{name: "index/large_fleet_rss", run: largeFleet},
	{name: "index/get,index/list10k,index/commit_p99_under_readers", run: indexReads},
	{name: "ingest/sync_ratio", run: syncRatio},
	{name: "ingest/watch_events", run: watchEvents},
	{name: "ingest/latency_p99", run: latency},
	{name: "query/first_page,query/list,query/count,query/related,query/authorization", run: queryAPI},
	{name: "query/typed_informer_sync", run: typedInformerSync},
	{name: "query/watch_fanout", run: watchFanout},
	{name: "query/policies,query/actions,query/violations", run: askPolicies},
	{name: "export", run: exports},
	{name: "policy/reviews_per_core,policy/gain", run: reviews},
	{name: "policy/eval_vs_go", run: besideGo},
	{name: "policy/allocations_clean_pod", run: allocations},
	{name: "gatekeeper", run: gatekeeperVerdicts},
	{name: "policy/full_reevaluation,policy/bytes", run: fullEvaluation},
	{name: "policy/delta_p99", run: deltaLatency},
	{name: "policy/flat_cost,policy/flat_evaluations", run: flatCost},
	{name: "shard/cpu,shard/cpu-batch,shard/bytes,shard/memory", run: shardsCost},
	{name: "policy/time_record,policy/time_fire", run: recordedTime},
	{name: "policy/preview_latency,policy/preview_cost", run: previews},
	{name: "policy/hostile", run: hostileNeighbours},
	{name: "enforce/delta_cost", run: deltaCost},
	{name: "trace/off,trace/on,trace/change_off,trace/change_on", run: traces},
	{name: "remediate/drift_to_corrected", run: corrections},
	{name: "hub/writes_at_rest,hub/writes_per_correction", run: hubWrites},
	{name: "restart/bytes_written,restart/bytes_on_disk", run: bytesWritten},
	{name: "restart/commit_cost,restart/commit_events,restart/visibility_p99", run: commitCost},
	{name: "restart/resumed", run: resumed, apart: true}, // it takes as long as the outages
	{name: "restart/exact", run: restartExact},
	{name: "restart/verdicts", run: restartVerdicts},
	{name: "restart/recovery", run: recovery},
	{name: "history/transition_cost,history/commit_p99,history/bytes", run: historyCost},
	{name: "audit/cost", run: auditCost},
	{name: "audit/rate", run: auditRate},
	{name: "audit/interval", run: auditIntervals, apart: true},
	{name: "agent/wan_ratio", run: wanRatio},
	{name: "agent/rss", run: agentRSS},
	{name: "agent/lossy", run: agentLossy, apart: true}, // it needs root
	{name: "agent/throughput", run: agentThroughput},
	{name: "agent/idle", run: agentIdle, apart: true}, // it takes minutes
	{name: "scale/rss,scale/heap,scale/goroutines,scale/descriptors,scale/bytes,scale/settle,scale/idle,scale/metrics", run: scaleFleet, apart: true},
	{name: "scale/exit", run: scaleExit, apart: true},
	{name: "scale/policies", run: scalePolicies, apart: true},
	{name: "scale/isolation", run: scaleIsolation, apart: true},
	{name: "scale/violations", run: scaleViolations, apart: true},
}

// bench is what the benchmarks share.
type bench struct {
	out      io.Writer // progress
	corpus   string
	dir      string // temporary
	scale    float64
	profiles string        // directory for those of children, "" for none
	soak     time.Duration // of what runs for as long as is given
	before   string        // a binary to compare with, "" for none
	outage   time.Duration // the longest that is waited for
	audits   time.Duration // that are watched

	scaleOpts scaleOptions
}

// n scales a number of objects.
func (b *bench) n(objects int) int { return max(int(float64(objects)*b.scale), 1) }

func (b *bench) progress(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

func main() {
	pattern := flag.String("run", "", "only benchmarks that match this regular expression")
	file := flag.String("json", "", "file for the figures as JSON")
	corpus := flag.String("corpus", "../shared/corpus", "directory of real objects; a small sample where it is absent")
	scale := flag.Float64("scale", 1, "factor on the numbers of objects, for trying the benchmarks out")
	soak := flag.Duration("soak", 20*time.Second, "how long deltas flow for policy/delta_p99; memory shows in 10m")
	profiles := flag.String("profiles", "", "directory for CPU profiles of what is measured in processes of its own")
	before := flag.String("before", "", "hub/writes: another federator binary, measured in the same run")
	outage := flag.Duration("outage", 5*time.Minute, "restart/resumed: the longest outage that is waited for; 30m for all")
	audits := flag.Duration("audits", 8*time.Minute, "audit/interval: how long audits are watched; below 16m in scaled time")
	var scaled scaleOptions
	scaled.register(flag.CommandLine)
	child := flag.String("child", "", "internal: what to measure in a process of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *child != "" {
		exit(runChild(ctx, *child, *profiles, flag.Args()))
		return
	}
	re, err := regexp.Compile(*pattern)
	exit(err)
	dir, err := os.MkdirTemp("", "federator-bench-")
	exit(err)
	b := &bench{out: os.Stderr, corpus: *corpus, dir: dir, scale: *scale, soak: *soak, profiles: *profiles, before: *before, outage: *outage, audits: *audits, scaleOpts: scaled}
	rows, err := b.all(ctx, re)
	print(os.Stdout, rows)
	if *file != "" {
		err = errors.Join(err, write(*file, rows))
	}
	exit(errors.Join(err, os.RemoveAll(dir)))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// all runs the benchmarks that match; one that breaks does not stop the
// others.
func (b *bench) all(ctx context.Context, re *regexp.Regexp) (rows []row, err error) {
	for _, bm := range benchmarks {
		if !re.MatchString(bm.name) || bm.apart && re.String() == "" {
			continue
		}
		b.progress("== %s", bm.name)
		got, failed := bm.run(ctx, b)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", bm.name, failed))
		}
		for _, r := range got {
			b.progress("   %s %s %s", r.Name, figure(r.Value), r.Unit)
		}
		rows = append(rows, got...)
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
	}
	return rows, err
}

func print(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVALUE\tUNIT\tBASELINE\tRATIO\tNOTE")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, figure(r.Value), r.Unit, figure(r.Baseline), figure(r.Ratio), r.Note)
	}
	_ = w.Flush() //nolint:errcheck // standard output
}

func figure(v float64) string {
	switch {
	case v == 0:
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

func write(file string, rows []row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
