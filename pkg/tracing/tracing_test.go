package tracing_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"federator.dev/federator/pkg/tracing"
	"federator.dev/federator/test/otlp"
)

var target = tracing.Object{Member: "fleet/eu", Kind: "ConfigMap", Namespace: "shop", Name: "a"}

func names(spans map[string]otlp.Span) string {
	return strings.Join(slices.Sorted(maps.Keys(spans)), " ")
}

func TestTracer_SamplesChanges(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Sampling = 1 })
	ex := r.commit(11, start, "a", "b")
	labels := r.batch(9, 11, start+5000)
	first, _ := r.TraceOf("", "", 10)
	if ex.Labels["trace_id"] != first.String() || ex.Read != start || labels["trace_id"] != first.String() {
		t.Errorf("exemplars are %v, %v, want trace %s", ex, labels, first)
	}
	spans := r.traced(t, 11)
	if got := names(spans); got != "batch change commit decode evaluation read view" {
		t.Fatal(got)
	}
	root := spans["change"]
	if a := root.Attributes; root.Parent != "" || a["federator.name"] != "b" || a["federator.member"] != "fleet/eu" || a["federator.revision"] != "11" || a["federator.kept"] != "sample" || root.Service != "federator" {
		t.Errorf("the root is %+v", root)
	}
	at := start
	for _, name := range []string{"read", "decode", "commit", "batch", "view", "evaluation"} {
		s := spans[name]
		if s.Parent != root.ID || s.Start.UnixNano() != int64(at) {
			t.Errorf("%s is below %s from %s, want %s from %d", name, s.Parent, s.Start, root.ID, at)
		}
		at = tracing.At(s.End)
	}
	if root.Start.UnixNano() != int64(start) || root.End.UnixNano() != int64(start+8000) {
		t.Errorf("the change took from %s to %s", root.Start, root.End)
	}
	batch := r.receiver.Trace(spans["batch"].Links[0])
	if len(batch) != 3 || len(batch[0].Links) != 2 || !slices.Contains(batch[0].Links, root.Trace) {
		t.Errorf("the batch is %+v", batch)
	}
}

func TestTracer_TracesTheSampleOnly(t *testing.T) {
	const n = 20_000
	r := newRig(t, func(o *tracing.Options) { o.Sampling, o.Queue = 0.01, n })
	kept := map[string]bool{}
	for revision := uint64(1); revision <= n; revision++ {
		if ex := r.commit(revision, start, "a"); ex.Labels != nil {
			kept[ex.Labels["trace_id"]] = true
		}
		r.batch(revision-1, revision, start+5000)
	}
	r.stop()
	got := map[string]bool{}
	for _, s := range r.receiver.Spans() {
		if s.Name == "change" {
			got[s.Trace] = true
		}
	}
	if !maps.Equal(got, kept) {
		t.Errorf("%d changes are traced, and %d are exemplars", len(got), len(kept))
	}
	if len(got) < n/100*8/10 || len(got) > n/100*12/10 {
		t.Errorf("%d of %d changes are traced", len(got), n)
	}
}

func TestTracer_TracesWhatIsSlow(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(o *tracing.Options) { o.Slow, o.SlowRate, o.Metrics = time.Second, 2, registry })
	r.commit(4, start, "a", "b", "c")
	r.commit(5, start+tracing.Instant(900*time.Millisecond), "d")
	r.batch(0, 5, start+tracing.Instant(1100*time.Millisecond))
	if spans := r.traced(t, 5); len(spans) != 0 {
		t.Errorf("what was fast has spans %s", names(spans))
	}
	slow := 0
	for _, s := range r.receiver.Spans() {
		if s.Attributes["federator.kept"] == "slow" {
			slow++
		}
	}
	dropped := `# HELP federator_traces_dropped_total Traces and spans of queries that were dropped, by why: queue (too many waited to be sent), slow (more slow changes in a second than are traced) or echo (more writes than are waited for).
# TYPE federator_traces_dropped_total counter
federator_traces_dropped_total{why="echo"} 0
federator_traces_dropped_total{why="queue"} 0
federator_traces_dropped_total{why="slow"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(dropped), "federator_traces_dropped_total"); err != nil || slow != 2 {
		t.Errorf("%d slow changes are traced, want 2: %v", slow, err)
	}
}

// TestTracer_ExemplarsAreTraced: where more changes are slow than are traced, what a latency points to is one of those that are.
func TestTracer_ExemplarsAreTraced(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Slow, o.SlowRate = time.Second, 2 })
	var exemplars []string
	for revision := uint64(1); revision <= 8; revision++ {
		ex := r.Committed(&tracing.Commit{Member: "fleet/eu", Kind: "ConfigMap", Revision: revision, Changes: 1, At: start + tracing.Instant(2*time.Second)},
			[]tracing.Stamp{{Namespace: "shop", Name: "a", Position: 1, Read: start}})
		if ex.Labels != nil {
			exemplars = append(exemplars, ex.Labels["trace_id"])
		}
	}
	r.batch(0, 8, start+tracing.Instant(2100*time.Millisecond))
	r.stop()
	for _, id := range exemplars {
		if len(r.receiver.Trace(id)) == 0 {
			t.Errorf("an exemplar is of trace %s, which there is not", id)
		}
	}
	if len(exemplars) != 2 {
		t.Errorf("%d exemplars, of 2 changes that are traced", len(exemplars))
	}
}

// TestTracer_TracesCommits is of a process without policies.
func TestTracer_TracesCommits(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Sampling, o.Judged = 1, false })
	r.commit(7, start, "a")
	if got := names(r.traced(t, 7)); got != "change commit decode read" {
		t.Error(got)
	}
}

// TestTracer_CommitsAfterTheirBatch is of a batch that takes a commit up before that is told.
func TestTracer_CommitsAfterTheirBatch(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Sampling = 1 })
	r.batch(0, 7, start+5000)
	r.commit(7, start, "a")
	if got := names(r.traced(t, 7)); got != "batch change commit decode evaluation read view" {
		t.Error(got)
	}
}

func TestTracer_SaysWhatOvertakes(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Sampling = 1 })
	r.commit(7, start, "a")
	r.commit(8, start, "b")
	r.commit(9, start, "a")
	r.batch(0, 9, start+5000)
	next, _ := r.TraceOf("", "", 9)
	if root := r.traced(t, 7)["change"]; root.Attributes["federator.overtaken_by"] != "9" || !slices.Contains(root.Links, next.String()) {
		t.Errorf("%+v", root)
	}
}

// attempt makes a correction that a change has caused, which writes a version of the target. in is called between its requests.
func (r *rig) attempt(t *testing.T, cause *tracing.Change, version string, in func()) (parent string) {
	t.Helper()
	ctx, a := r.Begin(t.Context(), cause, tracing.Correction{Policy: "p", Name: "p-1", Target: target})
	tracing.Start(ctx, tracing.DryRun)(nil)
	tracing.Start(ctx, tracing.Record)(nil)
	end := tracing.Start(ctx, tracing.Write)
	parent = tracing.Traceparent(ctx)
	if in != nil {
		in()
	}
	end(nil)
	tracing.Start(ctx, tracing.Outcome)(nil)
	if id := tracing.TraceID(ctx); !strings.Contains(parent, id) {
		t.Errorf("traceparent %s is of another trace than %s", parent, id)
	}
	a.End(tracing.Ended{Action: "p-1", Phase: "Succeeded", AuditID: "audit", Written: true, Version: version})
	return parent
}

func TestTracer_FollowsCorrections(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("the echo comes before the answer: %t", before), func(t *testing.T) {
			r := newRig(t, nil)
			r.commit(10, start, "a")
			r.batch(9, 10, start+5000)
			cause := r.Cause(10, target)
			echo := func() {
				r.commit(11, start+20_000, "a")
				r.batch(10, 11, start+25_000)
			}
			var parent string
			if before {
				parent = r.attempt(t, cause, "1011", echo)
			} else {
				parent = r.attempt(t, cause, "1011", nil)
				echo()
			}
			spans := r.traced(t, 10)
			if got := names(spans); got != "Action batch change commit correction decode dry run echo evaluation gate intent outcome read view write" {
				t.Fatal(got)
			}
			if want := "00-" + spans["write"].Trace + "-" + spans["write"].ID + "-01"; parent != want {
				t.Errorf("traceparent is %s, want %s", parent, want)
			}
			correction := spans["correction"]
			if a := correction.Attributes; correction.Parent != spans["change"].ID || a["federator.action"] != "p-1" || a["federator.audit_id"] != "audit" || a["federator.phase"] != "Succeeded" || a["federator.policy"] != "p" {
				t.Errorf("%+v", correction)
			}
			if spans["change"].Attributes["federator.kept"] != "action" {
				t.Errorf("%+v", spans["change"])
			}
			id, _ := r.TraceOf("", "", 11)
			back := r.receiver.Trace(id.String())
			if len(back) == 0 || back[0].Attributes["federator.kept"] != "echo" || back[0].Links[0] != correction.Trace || spans["echo"].Links[0] != id.String() {
				t.Errorf("echo %+v links to %+v", spans["echo"], back)
			}
		})
	}
}

func TestTracer_DeletionsAreCausesAndEchoes(t *testing.T) {
	r := newRig(t, nil)
	gone := func(revision uint64, at tracing.Instant) {
		r.Committed(&tracing.Commit{Member: target.Member, Kind: target.Kind, Revision: revision, Changes: 1, At: at}, []tracing.Stamp{{
			Namespace: target.Namespace, Name: target.Name, Deleted: true, Position: 1, Read: at, Began: at, Decoded: at,
		}})
		r.batch(revision-1, revision, at)
	}
	gone(10, start)
	cause := r.Cause(0, target)
	if cause.Revision != 10 || !cause.Deleted {
		t.Fatalf("the cause is %+v", cause)
	}
	r.attempt(t, cause, "", nil)
	gone(11, start+10)
	if spans := r.traced(t, 10); spans["echo"].Attributes["federator.revision"] != "11" {
		t.Errorf("%+v", spans["echo"])
	}
}

func TestTracer_CorrectionsOfWhatIsNotKnown(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Changes = 2 })
	r.commit(10, start, "a")
	r.commit(12, start, "b")
	r.batch(9, 12, start+5000)
	cause := r.Cause(10, target)                       // which another change has taken the place of
	const earlier = "0af7651916cd43dd8448eb211c80319c" // of another process, which has recorded the Action
	_, a := r.Begin(t.Context(), cause, tracing.Correction{Policy: "p", Name: "p-1", Target: target})
	a.End(tracing.Ended{Action: "p-1", Phase: "Superseded", TraceID: earlier})
	_, dropped := r.Begin(t.Context(), cause, tracing.Correction{Policy: "p", Name: "p-2", Target: target})
	dropped.Drop()
	_, rollback := r.Begin(t.Context(), nil, tracing.Correction{Policy: "p", Name: "r-1", Target: target})
	rollback.End(tracing.Ended{Action: "r-1", Phase: "Failed"})
	spans := r.traced(t, 10)
	if got := names(spans); got != "batch change correction evaluation gate intent view" || !slices.Contains(spans["correction"].Links, earlier) {
		t.Errorf("%s, with links to %q", got, spans["correction"].Links)
	}
	roots := 0
	for _, s := range r.receiver.Spans() {
		if s.Name == "correction" && s.Parent == "" && s.Attributes["federator.action"] == "r-1" && s.Failed {
			roots++
		}
	}
	if roots != 1 {
		t.Errorf("%d traces of the rollback", roots)
	}
}

// TestTracer_NoCauseIsKnown: corrections of which no change is known do not share the trace of one that there is not.
func TestTracer_NoCauseIsKnown(t *testing.T) {
	r := newRig(t, nil)
	if cause := r.Cause(0, target); cause != nil {
		t.Errorf("%+v", cause)
	}
}

func TestTracer_EndsWithoutAnEcho(t *testing.T) {
	now := time.Unix(0, int64(start))
	r := newRig(t, func(o *tracing.Options) { o.Clock = func() time.Time { return now } })
	r.commit(10, start, "a")
	r.batch(9, 10, start+5000)
	r.attempt(t, r.Cause(10, target), "1011", nil)
	r.commit(11, start, "a") // of version 1011 of another object
	spans := r.traced(t, 10)
	if _, is := spans["correction"]; !is {
		t.Error(names(spans))
	}
}

// TestTracer_NeverWaits is of a receiver that does not answer.
func TestTracer_NeverWaits(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(o *tracing.Options) {
		o.Sampling, o.Queue, o.Metrics, o.EndWithin = 1, 16, registry, 100*time.Millisecond
	})
	r.receiver.Block()
	for revision := uint64(1); revision <= 5000; revision++ {
		r.commit(revision, start, "a")
		r.batch(revision-1, revision, start)
	}
	found, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0.0
	for _, f := range found {
		if f.GetName() == "federator_traces_dropped_total" {
			for _, m := range f.GetMetric() {
				dropped += m.GetCounter().GetValue()
			}
		}
	}
	if dropped == 0 {
		t.Error("nothing was dropped")
	}
	r.stop() // in time, or the test does not end
}

// TestQueries_AreBoundedText: clients choose what spans of their requests have, and one of them must not cost all that is sent with it.
func TestQueries_AreBoundedText(t *testing.T) {
	r := newRig(t, func(o *tracing.Options) { o.Sampling = 1 })
	of := r.Queries().Tracer("test")
	_, span := of.Start(t.Context(), "/api/\xff", trace.WithAttributes(
		attribute.String("user_agent.original", "curl\xff"), attribute.String("http.target", "/query/v1/rego?query="+strings.Repeat("x", 1<<20)),
	))
	span.AddEvent("a\xff", trace.WithAttributes(attribute.StringSlice("b", []string{"c\xff"})))
	span.SetStatus(codes.Error, "d\xff")
	span.End()
	_, other := of.Start(t.Context(), "other")
	other.End()
	r.stop()
	if n := len(r.receiver.Spans()); n != 2 {
		t.Errorf("%d of 2 spans are sent", n)
	}
	for _, s := range r.receiver.Spans() {
		if n := len(s.Attributes["http.target"]); n > 2048 {
			t.Errorf("http.target has %d bytes", n)
		}
	}
}

func TestTracer_OffDoesNothing(t *testing.T) {
	var off *tracing.Tracer
	if _, ok := off.TraceOf("a", "b", 1); ok || off.Queries() != nil || off.Cause(1, target) != nil {
		t.Error("it traces")
	}
	stamps := []tracing.Stamp{{Position: 1}}
	commit := &tracing.Commit{Changes: 1}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		off.Committed(commit, stamps)
		off.Evaluated(tracing.Batch{After: 1})
		inner, a := off.Begin(ctx, nil, tracing.Correction{})
		tracing.Start(inner, tracing.Write)(nil)
		_ = tracing.Traceparent(inner)
		a.End(tracing.Ended{})
		a.Drop()
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestTracer_AllocatesNothingForWhatIsNotKept(t *testing.T) {
	r := newRig(t, nil)
	stamps := []tracing.Stamp{{Namespace: "shop", Name: "a", Position: 1, Read: start, Began: start, Decoded: start}}
	revision := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		revision++
		r.Committed(&tracing.Commit{Member: "fleet/eu", Kind: "Pod", Revision: revision, Changes: 1, At: start}, stamps)
		r.batch(revision-1, revision, start)
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func TestNew_Refusals(t *testing.T) {
	exporter, err := tracing.NewExporter(t.Context(), tracing.Receiver{Endpoint: "localhost:4317", Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = exporter.Shutdown(t.Context()) }()
	for want, o := range map[string]tracing.Options{
		"Exporter is required":    {},
		"must be between 0 and 1": {Exporter: exporter, Sampling: 1.5},
		"negative bound":          {Exporter: exporter, Slow: -1},
		"must be a power of two":  {Exporter: exporter, Changes: 3},
	} {
		if _, err := tracing.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestTraceOf_IsTheSameEverywhere(t *testing.T) {
	seen := map[string]string{}
	for _, installation := range []string{"a", "b"} {
		for range 2 {
			r := newRig(t, func(o *tracing.Options) { o.Installation = installation })
			for revision := uint64(1); revision < 1000; revision++ {
				id, _ := r.TraceOf("fleet/eu", "Pod", revision)
				of := fmt.Sprint(installation, revision)
				if was, is := seen[id.String()]; is && was != of {
					t.Fatalf("%s and %s have one ID", was, of)
				}
				seen[id.String()] = of
			}
			r.stop()
		}
	}
	if len(seen) != 2*999 {
		t.Errorf("%d IDs", len(seen))
	}
}

// TestTracer_IsForAnyGoroutine has changes, batches, corrections and their echoes meet.
func TestTracer_IsForAnyGoroutine(t *testing.T) {
	const writers, changes = 4, 500
	registry := prometheus.NewRegistry()
	r := newRig(t, func(o *tracing.Options) { o.Sampling, o.Metrics, o.Changes = 0.1, registry, 64 })
	var revisions atomic.Uint64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range changes {
				r.commit(revisions.Add(1), start, "a")
			}
		})
	}
	wg.Go(func() {
		for before := uint64(0); before < writers*changes; {
			after := revisions.Load()
			r.batch(before, after, start)
			before = after
		}
	})
	for range writers {
		wg.Go(func() {
			for range changes / 10 {
				revision := revisions.Load()
				ctx, a := r.Begin(t.Context(), r.Cause(revision, target), tracing.Correction{Policy: "p", Name: fmt.Sprint(revision), Target: target})
				tracing.Start(ctx, tracing.Write)(nil)
				a.End(tracing.Ended{Phase: "Succeeded", Written: true, Version: fmt.Sprint(1000 + revisions.Load())})
				if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "nothing"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.stop()
	corrections := 0
	for _, s := range r.receiver.Spans() {
		if s.Name == "correction" {
			corrections++
		}
	}
	if corrections != writers*changes/10 {
		t.Errorf("%d corrections were traced, want %d", corrections, writers*changes/10)
	}
}
